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

    @Test("a policy that becomes strict during a sign-in's write enforces pending cleanups")
    func policyBecomesStrict() throws {
        try device.signIn("ada", by: desk)
        try device.signOut(by: desk)
        let request = sendToSlowDisk(VirtualDevice.signIn("grace"), by: other) {
            device.configure { $0.cleanup = .strict }
        }
        device.expectRefused(request, code: .cleanupPending)
        device.expectSignedOut()
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
        let credentials = Request.Credentials(username: "admin@contoso", password: Secret("right"))
        let request = try sendToSlowProvider(.join(credentials), by: device.administrator) {
            try device.useOrganisation()
        }
        device.expectRefused(request, .noJoinByPage)
        #expect(device.state.membership == nil)
    }

    @Test("a pending request of an app that a new configuration blocks is refused", arguments: ["ada", nil])
    func appIsKeptOut(person: String?) throws {
        if let person { try device.signIn(person, by: desk) }
        let call = person == nil ? VirtualDevice.signIn("grace") : .currentAccount
        let request = sendToSlowDisk(call, by: other) { device.configure { $0.lists.blocked = ["other"] } }
        device.expectRefused(request, code: .appNotEligible)
        device.expectPerson(person)
    }

    @Test("a tenant configured during a sign-in's write refuses another tenant's user")
    func anotherTenant() {
        device.advance(by: .seconds(1))
        let request = sendToSlowDisk(VirtualDevice.signIn("ada@fabrikam"), by: desk) {
            device.configure { $0.tenantIdentifier = "contoso" }
        }
        device.expectRefused(request, .tenantMismatch)
        device.expectSignedOutOnDisk()
    }

    @Test("a session that a clock jump ends at its start gives out no account")
    func clockJumps() throws {
        device.configure { $0.schedule.inactivity = .seconds(900) }
        try device.signIn("ada", by: desk)
        try device.signOut(by: desk)
        let request = sendToSlowDisk(VirtualDevice.signIn("grace"), by: desk) { device.setClock(forwardBy: 86_400) }
        device.expectSignedOut()
        device.expectRefused(request, code: .noCurrentAccount)
    }
}
