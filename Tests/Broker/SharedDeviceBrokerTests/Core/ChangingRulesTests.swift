import DeviceConfiguration
import Foundation
import Identity
import SharedDevice
import Testing
import simulate

@testable import BrokerCore

@Suite("Policies and the clock change while a request waits")
struct ChangingRulesTests {
    private let device = VirtualDevice(.advisory)
    private let desk: VirtualDevice.App
    private let other: VirtualDevice.App

    init() {
        desk = device.app("desk")
        other = device.app("other")
    }

    /// Sends the request, makes the change while the disk writes for the request, and lets the disk commit.
    private func sendToSlowDisk(
        _ call: Request.Call,
        by app: VirtualDevice.App,
        meanwhile change: () throws -> Void
    ) rethrows -> UInt64 {
        device.diskMode = .holds
        let request = device.send(app, call)
        try change()
        device.resumeDisk()
        return request
    }

    /// Sends the request, makes the change while the provider works on the request, and lets the provider respond.
    private func sendToSlowProvider(
        _ call: Request.Call,
        by app: VirtualDevice.App,
        meanwhile change: () throws -> Void
    ) rethrows -> UInt64 {
        device.holdsProvider = true
        let request = device.send(app, call)
        try change()
        device.letProviderAnswer()
        return request
    }

    @Test("a sign-in is refused if a change during its write forbids it")
    func forbidden() throws {
        let changes: [(person: String, SharedDeviceError.Code, change: (Self) -> Void)] = [
            ("grace", .cleanupPending, { test in test.device.configure { $0.cleanup = .strict } }),
            ("grace", .appNotEligible, { test in test.device.configure { $0.lists.blocked = ["other"] } }),
            ("grace@fabrikam", .tenantMismatch, { test in test.device.configure { $0.tenantIdentifier = "contoso" } }),
            // The jump of the clock ends the new session at its start.
            ("grace", .noCurrentAccount, { test in test.device.setClock(forwardBy: 86_400) }),
        ]
        for (person, code, change) in changes {
            let test = Self()
            test.device.configure { $0.schedule.inactivity = .seconds(900) }
            try test.device.signIn("ada", by: test.desk)
            try test.device.signOut(by: test.desk)
            let request = test.sendToSlowDisk(VirtualDevice.signIn(person), by: test.other) { change(test) }
            test.device.expectRefused(request, code: code, "the change must cause \(code)")
            test.device.expectSignedOutOnDisk()
        }
    }

    @Test("a pending request of an app that a new configuration blocks is refused")
    func appIsKeptOut() throws {
        try device.signIn("ada", by: desk)
        let request = sendToSlowDisk(.currentAccount, by: other) { device.configure { $0.lists.blocked = ["other"] } }
        device.expectRefused(request, code: .appNotEligible)
        device.expectPerson("ada")
    }

    @Test("a policy that becomes strict during a token request refuses an app in debt")
    func tokenUnderWay() throws {
        try device.signIn("ada", by: desk)
        device.send(other, .currentAccount)
        try device.signOut(by: desk)
        try device.signIn("grace", by: desk)
        let request = sendToSlowProvider(device.acquireToken(for: "grace", [], refresh: true), by: other) {
            device.configure { $0.cleanup = .strict }
        }
        device.expectRefused(request, code: .cleanupRequired)
    }

    @Test("a password checked by the old directory does not sign in at the new provider")
    func anotherDirectory() throws {
        let request = try sendToSlowProvider(VirtualDevice.signIn("ada"), by: desk) { try device.useOrganisation() }
        device.expectSignedOut()
        #expect(device.refusal(request) != nil)
    }

    @Test("a change of the provider during a sign-in's write refuses the sign-in", arguments: [true, false])
    func anotherDirectoryMeanwhile(isPage: Bool) throws {
        if isPage { try device.useOrganisation() }
        let till = device.app("org.example.till")
        let call = try isPage ? device.answerPage(device.beginPage(till), "ada") : VirtualDevice.signIn("ada")
        let request = try sendToSlowDisk(call, by: till) {
            if isPage {
                device.configure { ($0.identity, $0.organisation) = (.embedded, nil) }
            } else {
                try device.useOrganisation()
            }
        }
        device.expectRefused(request, .noSuchPrompt)
        device.expectSignedOutOnDisk()
    }

    @Test("an administrator cannot join the device after its provider has changed")
    func joining() throws {
        device.administrators = ["admin@contoso"]
        let credentials = SignInRequest(username: "admin@contoso", password: Secret("right"))
        let request = try sendToSlowProvider(.join(credentials), by: device.administrator) {
            try device.useOrganisation()
        }
        device.expectRefused(request, .noJoinByPage)
        #expect(device.state.membership == nil)
    }
}
