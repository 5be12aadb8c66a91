import DeviceConfiguration
import Foundation
import Identity
import SharedDevice
import Testing
import simulate

@testable import SharedDeviceBroker

@Suite("Policies and the clock change while a request waits")
struct ChangingRulesTests {
    @Test("a policy that becomes strict during a sign-in's write enforces pending cleanups")
    func policyBecomesStrict() throws {
        let device = VirtualDevice(.advisory)
        let (desk, other) = (device.app("desk"), device.app("other"))
        try device.signIn("ada", by: desk)
        try device.signOut(by: desk)
        device.diskMode = .holds
        let request = device.send(other, VirtualDevice.signIn("grace"))
        device.configure { $0.cleanup = .strict }
        device.diskMode = .commits
        device.finishWriting()
        device.expectRefused(request, code: .cleanupPending)
        device.expectSignedOut()
    }

    @Test("a policy that becomes strict during a token request refuses an app in debt")
    func tokenUnderWay() throws {
        let device = VirtualDevice(.advisory)
        let (desk, other) = (device.app("desk"), device.app("other"))
        try device.signIn("ada", by: desk)
        _ = device.send(other, .currentAccount)
        try device.signOut(by: desk)
        try device.signIn("grace", by: desk)
        device.holdsProvider = true
        let identifier = Account.named("grace").identifier
        let request = device.send(
            other,
            .acquireToken(identifier: identifier, scopes: [], refresh: true, session: nil)
        )
        device.configure { $0.cleanup = .strict }
        device.letProviderAnswer()
        device.expectRefused(request, code: .cleanupRequired)
    }

    @Test("a password checked by the old directory does not sign in at the new provider")
    func anotherDirectory() throws {
        let device = VirtualDevice(.advisory)
        let desk = device.app("desk")
        device.holdsProvider = true
        let request = device.send(desk, VirtualDevice.signIn("ada"))
        try device.useOrganisation()
        device.letProviderAnswer()
        device.expectSignedOut()
        #expect(device.refusal(request) != nil)
    }

    @Test(
        "a change of the provider during a sign-in's write refuses the sign-in",
        arguments: [true, false]
    )
    func anotherDirectoryMeanwhile(isPage: Bool) throws {
        let device = VirtualDevice(.advisory)
        if isPage { try device.useOrganisation() }
        let desk = device.app("org.example.till")
        let page = isPage ? try device.beginPage(desk) : ""
        device.diskMode = .holds
        let request = device.send(desk, isPage ? device.answerPage(page, "ada") : VirtualDevice.signIn("ada"))
        if isPage {
            device.configure { ($0.identity, $0.organisation) = (.embedded, nil) }
        } else {
            try device.useOrganisation()
        }
        device.diskMode = .commits
        device.finishWriting()
        device.expectRefused(request, .noSuchPrompt)
        device.expectSignedOutOnDisk()
    }

    @Test("an administrator cannot join the device after its provider has changed")
    func joining() throws {
        let device = VirtualDevice()
        device.administrators = ["admin@contoso"]
        let root = device.app(nil, user: 0, isAdministrator: true)
        device.holdsProvider = true
        let credentials = Request.Credentials(username: "admin@contoso", password: Secret("right"))
        let request = device.send(root, .join(credentials))
        try device.useOrganisation()
        device.letProviderAnswer()
        device.expectRefused(request, .noJoinByPage)
        #expect(device.state.membership == nil)
    }

    @Test("an app blocked by a new configuration is refused the account it waits for")
    func appIsKeptOut() throws {
        let device = VirtualDevice(.advisory)
        let (desk, stranger) = (device.app("desk"), device.app("stranger"))
        try device.signIn("ada", by: desk)
        device.diskMode = .holds
        let question = device.send(stranger, .currentAccount)
        device.configure { $0.lists.blocked = ["stranger"] }
        device.diskMode = .commits
        device.finishWriting()
        device.expectRefused(question, code: .appNotEligible)
    }

    @Test("an app blocked by a new configuration is refused the sign-in it waits for")
    func signInIsKeptOut() throws {
        let device = VirtualDevice(.advisory)
        let stranger = device.app("stranger")
        device.diskMode = .holds
        let request = device.send(stranger, VirtualDevice.signIn("ada"))
        device.configure { $0.lists.blocked = ["stranger"] }
        device.diskMode = .commits
        device.finishWriting()
        device.expectRefused(request, code: .appNotEligible)
        device.expectSignedOut()
    }

    @Test("a session that a clock jump ends at its start gives out no account")
    func clockJumps() throws {
        let device = VirtualDevice(.advisory)
        device.configure { $0.schedule.inactivity = .seconds(900) }
        let desk = device.app("desk")
        try device.signIn("ada", by: desk)
        try device.signOut(by: desk)
        device.diskMode = .holds
        let request = device.send(desk, VirtualDevice.signIn("grace"))
        device.setClock(forwardBy: 86_400)
        device.diskMode = .commits
        device.finishWriting()
        device.expectSignedOut()
        device.expectRefused(request, code: .noCurrentAccount)
    }
}
