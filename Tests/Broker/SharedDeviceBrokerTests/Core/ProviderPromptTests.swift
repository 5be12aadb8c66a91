import DBus
import DeviceConfiguration
import Foundation
import Identity
@_spi(Extensions) import SharedDevice
import Testing

@testable import SharedDeviceBroker

@Suite("Which apps may begin a reauthentication")
struct ProviderPromptTests {
    /// Grace is signed in and the provider requires her to reauthenticate. The till owes the cleanup of Ada's data.
    private struct Scene {
        let device = VirtualDevice(CleanupPolicy(.advisory))
        let prompt: VirtualDevice.App
        let till: VirtualDevice.App

        init() throws {
            try device.useOrganisation()
            (prompt, till) = (device.app("org.example.prompt"), device.app("org.example.till"))
            try device.signInAtProvider("ada", by: prompt)
            _ = try device.session(for: till)
            try device.signOut(by: prompt)
            try device.signInAtProvider("grace", by: prompt)
            let service = device.app(nil, user: 0, isAdministrator: true)
            let event = ProviderEvent(
                .reauthenticate,
                issuer: VirtualProvider.issuer,
                subject: "grace",
                date: device.now.wall
            )
            try device.ask(service, .providerEvents([event]))
        }

        /// From now on an app that owes a cleanup does not learn which account is signed in.
        func becomeStrict() { device.configure { $0.cleanup = CleanupPolicy(.strict) } }
    }

    // The page's address would tell the app which account is signed in.
    @Test("an app that owes a cleanup may not begin one under a strict policy")
    func begin() throws {
        let scene = try Scene()
        let device = scene.device
        scene.becomeStrict()
        let before = device.provider.starts.count
        #expect(throws: Refusal.cleanupRequired) { try device.beginPage(scene.till) }
        #expect(device.provider.starts.count == before)
        let page = try device.beginPage(scene.prompt)
        #expect(device.provider.starts.last?.loginHint == "grace")
        #expect(try device.ask(scene.prompt, device.answerPage(page, "grace"))["username"] == .string("grace"))
    }

    @Test("a prompt that began before the policy became strict is refused", arguments: [true, false])
    func complete(isLate: Bool) throws {
        let scene = try Scene()
        let device = scene.device
        let page = try device.beginPage(scene.till)
        let number: UInt64
        if isLate {
            device.holdsProvider = true
            number = device.send(scene.till, device.answerPage(page, "grace"))
            scene.becomeStrict()
            device.letProviderAnswer()
        } else {
            scene.becomeStrict()
            number = device.send(scene.till, device.answerPage(page, "grace"))
        }
        device.expectRefused(number, .cleanupRequired)
        #expect(device.state.provider.needsPerson)
    }

    @Test(
        "a user's two prompts count even if they leave while the provider hangs",
        arguments: [true, false]
    )
    func leaving(isCompleted: Bool) throws {
        let device = VirtualDevice()
        try device.useOrganisation()
        let pages = try (0..<2).map { _ in
            let prompt = device.app("org.example.prompt")
            return (prompt, isCompleted ? try device.beginPage(prompt) : "")
        }
        device.holdsProvider = true
        for (prompt, page) in pages {
            if isCompleted {
                device.send(prompt, device.answerPage(page, "ada"))
            } else {
                device.send(prompt, .beginSignIn(Self.page))
            }
            device.quit(prompt)
        }
        let next = device.app("org.example.prompt")
        device.expectRefused(device.send(next, .beginSignIn(Self.page)), .tooManyPrompts)
        let other = device.app("org.example.prompt", user: 2000)
        device.send(other, .beginSignIn(Self.page))
        device.quit(other)
        device.letProviderAnswer()
        #expect(device.state.prompts.isEmpty)
        device.expectSignedOut()
        #expect(device.provider.cancelled.count == 3)
        #expect(try !device.beginPage(next).isEmpty)
    }

    private static var page: Request.PromptWish {
        var wish = Request.PromptWish()
        wish.redirect = "http://127.0.0.1:1234/callback"
        return wish
    }
}
