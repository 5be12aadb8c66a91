import DBus
import DeviceConfiguration
import Identity
import Testing

@testable import SharedDeviceBroker

@Suite("Which apps may begin a reauthentication")
struct ProviderPromptTests {
    private let device = VirtualDevice()

    init() throws { try device.useOrganisation() }

    /// Grace is signed in and the provider requires her to reauthenticate. The till owes the cleanup of Ada's data.
    private func owe() throws {
        try device.signInAtProvider()
        _ = try device.session(for: device.till)
        try device.signOut(by: device.prompt)
        try device.signInAtProvider("grace")
        try device.report(.of(.reauthenticate, "grace", at: device.now.wall))
    }

    /// From now on an app that owes a cleanup does not learn which account is signed in.
    private func becomeStrict() { device.configure { $0.cleanup = .strict } }

    // The page's address would tell the app which account is signed in.
    @Test("an app that owes a cleanup may not begin one under a strict policy")
    func begin() throws {
        try owe()
        becomeStrict()
        let before = device.provider.starts.count
        #expect(throws: Refusal.cleanupRequired) { try device.beginPage(device.till) }
        #expect(device.provider.starts.count == before)
        let page = try device.beginPage()
        #expect(device.provider.starts.last?.loginHint == "grace")
        try device.expectAnswer(device.sendPage(page, "grace"), "username", .string("grace"))
    }

    @Test("a prompt that began before the policy became strict is refused", arguments: [true, false])
    func complete(isLate: Bool) throws {
        try owe()
        let page = try device.beginPage(device.till)
        device.holdsProvider = true
        if !isLate { becomeStrict() }
        let number = device.send(device.till, device.answerPage(page, "grace"))
        if isLate { becomeStrict() }
        device.letProviderAnswer()
        device.expectRefused(number, .cleanupRequired)
        #expect(device.state.provider.needsPerson)
    }

    @Test("a user's two prompts count even if they leave while the provider hangs", arguments: [true, false])
    func leaving(isCompleted: Bool) throws {
        let pages = try (0..<2).map { _ in
            let prompt = device.app("org.example.prompt")
            return (prompt, isCompleted ? try device.beginPage(prompt) : "")
        }
        device.holdsProvider = true
        for (prompt, page) in pages {
            device.send(prompt, isCompleted ? device.answerPage(page, "ada") : .beginSignIn(VirtualDevice.pageWish))
            device.quit(prompt)
        }
        let next = device.app("org.example.prompt")
        device.expectRefused(device.send(next, .beginSignIn(VirtualDevice.pageWish)), .tooManyPrompts)
        let other = device.app("org.example.prompt", user: 2000)
        device.send(other, .beginSignIn(VirtualDevice.pageWish))
        device.quit(other)
        device.letProviderAnswer()
        #expect(device.state.prompts.isEmpty)
        device.expectSignedOut()
        #expect(device.provider.cancelled.count == 3)
        #expect(try !device.beginPage(next).isEmpty)
    }
}
