import DBus
import DeviceConfiguration
import Foundation
@_spi(Extensions) import SharedDevice
import Testing

@testable import BrokerCore

extension VirtualDevice {
    /// A device whose account is the user who is logged in at the seat.
    static func withLogins(_ cleanup: CleanupPolicy = .advisory, ends: Bool = false) -> VirtualDevice {
        let device = VirtualDevice(cleanup)
        device.configure {
            $0.identity = .loginSession
            $0.endsLoginSession = ends
        }
        device.sit()
        return device
    }

    func sit(_ sessions: LoginSessions.Session...) { sit(sessions) }

    /// Changes the login sessions at the seat, and expects this signed-in user afterwards; `nil` for none.
    func sit(
        _ sessions: LoginSessions.Session...,
        expecting name: String?,
        signedOutBy causes: [String]? = nil,
        sourceLocation: SourceLocation = #_sourceLocation
    ) {
        sit(sessions)
        expectPerson(name, signedOutBy: causes, sourceLocation: sourceLocation)
    }

    private func sit(_ sessions: [LoginSessions.Session]) {
        var all = LoginSessions(scope: .seat("seat0"))
        for session in sessions { _ = all.found(session, at: "/\(session.identifier)") }
        feed(.seat(all.seat))
    }

    var person: String? { state.device.account?.username }
    var signOutCauses: [String] { journal.filter { $0.event == .signedOut }.compactMap(\.detail) }
    var loginProblem: String? { (try? ask(administrator, .deviceInformation))?["loginProblem"]?.stringValue }
}

@Suite("The user who is logged in at the seat is the account")
struct SeatTests {
    private let device = VirtualDevice.withLogins()

    private static let background = LoginSessions.Session.of(isActive: false)
    private static let bea = LoginSessions.Session.of(1001, "2", name: "bea")

    private func signOutByAdministrator() throws {
        try device.ask(device.administrator, .signOutAnyone(identifier: nil, reason: "the shift is over"))
    }

    @Test("input reported by the account's user keeps the session; others cannot report any")
    func input() throws {
        let device = VirtualDevice(requiresProof: true)
        device.configure {
            $0.identity = .loginSession
            $0.requiresEnrolment = true
            $0.schedule.inactivity = .seconds(600)
        }
        device.use(
            AppManifest(identifier: BrokerProtocol.activityIdentifier, identity: .init(executable: "/usr/bin/app"))
        )
        device.sit(.of(1000), expecting: "ada")
        device.advance(by: .seconds(300))
        try device.ask(device.app(BrokerProtocol.activityIdentifier, user: 1000), .activity)
        device.advance(by: .seconds(300))
        let stranger = device.app(BrokerProtocol.activityIdentifier, user: 1001)
        device.expectRefused(device.send(stranger, .activity), code: .appNotEligible)
        device.expectSignedIn(after: .seconds(299))
        device.expectSignedOut(after: .seconds(1))
    }

    @Test("a login signs in, and a log-out signs out, also between two updates")
    func loginAndLogout() throws {
        let desk = device.app("desk")
        try device.expectAccount(nil, for: desk)
        device.sit(.of(), expecting: "ada")
        #expect(try device.session(for: desk).session.account?.identifier == "uid-1000.login-session")
        device.sit(.of(1000, "2", began: 1_000_500), expecting: "ada", signedOutBy: ["logout"])
        #expect(try device.owed(by: desk).count == 1)
        // After a restart logind numbers sessions from the beginning, so an identifier may repeat.
        device.sit(.of(1000, "2", began: 1_000_900), expecting: "ada", signedOutBy: ["logout", "logout"])
        device.sit(expecting: nil, signedOutBy: ["logout", "logout", "logout"])
        #expect(try device.owed(by: desk).count == 2)
    }

    @Test("a user is signed in once the session is committed; the status says why not yet")
    func disk() {
        device.diskMode = .fails("no space")
        device.sit(.of(), expecting: nil)
        device.expectLoginProblem("no space")
        device.diskMode = .commits
        device.advance(by: .seconds(3))
        device.expectPerson("ada")
        device.expectLoginProblem(nil)
        device.sit()
        device.advance(by: .seconds(1))
        device.diskMode = .holds
        device.sit(.of(1000, "2"), expecting: nil)
        // Ada logs out before the session is committed.
        device.sit()
        device.finishWriting()
        device.expectPerson(nil)
        device.resumeDisk()
        device.sit(.of(1000, "3"), expecting: "ada")
    }

    @Test("passwords are refused unchecked and tokens are refused, with the reason")
    func password() throws {
        let desk = device.app("desk")
        let refusal = try #require(device.refusalOfSignIn("ada", by: desk))
        #expect(refusal.code == .notPermitted && refusal.description.contains("logging in at the machine"))
        device.expectPasswordChecks(0)
        device.sit(.of())
        let token = try #require(device.refusal(device.send(desk, device.acquireToken(for: "uid-1000@login-session"))))
        #expect(token.code == .notPermitted && token.description.contains("Kerberos"))
    }

    @Test("under a strict policy the next user is signed in after the last receipt")
    func strict() throws {
        device.configure { $0.cleanup = .strict }
        let desk = device.app("desk")
        device.sit(.of())
        _ = try device.session(for: desk)
        device.sit(Self.bea, expecting: nil)
        device.expectLoginProblem("not yet gone from desk")
        try device.finish(desk)
        device.expectPerson("bea")
        device.expectLoginProblem(nil)
    }

    @Test("a second session or greeter changes nothing; a switch of users signs out and in")
    func switching() {
        // The log-out setting has no separate effect when the login is the account.
        device.configure { $0.endsAtLogout = true }
        device.sit(.of())
        let session = device.state.device.epoch
        device.sit(Self.background, .of(1000, "2"))
        device.feed(.login(.ended))
        device.sit(.of(1000, "2"))
        device.sit(.of(1000, "2", isLocked: true))
        device.expectEpoch(session)
        device.sit(expecting: nil)
        device.sit(.of())
        device.sit(Self.background, expecting: "ada")
        device.sit(Self.background, Self.bea, expecting: "bea", signedOutBy: ["logout", "switch of users"])
        device.sit(Self.background, expecting: nil)
        device.sit(.of(), expecting: "ada")
    }

    @Test("a locked screen signs out only its user, and unlocking signs in again")
    func screenLock() {
        device.configure { $0.endsAtScreenLock = true }
        device.sit(.of())
        device.feed(.login(.locked(LoginSessions.Session.of().name)))
        device.sit(.of(isLocked: true), expecting: nil, signedOutBy: ["screen lock"])
        device.sit(.of(), expecting: "ada")
        // A session that is locked from its start is signed in once it is unlocked.
        device.sit(.of(1001, "2", name: "bea", isLocked: true), expecting: nil)
        device.sit(Self.bea, expecting: "bea")
        // A lock in the background has no effect.
        let ada = LoginSessions.Session.of(isActive: false, isLocked: true)
        device.sit(ada, Self.bea, expecting: "bea")
        device.feed(.login(.locked(ada.name)))
        device.expectPerson("bea", signedOutBy: ["screen lock", "logout"])
        // The watch reports the seat before the lock.
        device.sit(ada, .of(1001, "2", name: "bea", isLocked: true))
        device.feed(.login(.locked(Self.bea.name)))
        device.feed(.time)
        device.expectPerson(nil, signedOutBy: ["screen lock", "logout", "screen lock"])
    }

    @Test("the lock of a second session ends the sign-in whose write is in flight")
    func lockOfSecond() {
        device.configure { $0.endsAtScreenLock = true }
        device.diskMode = .holds
        device.sit(Self.background)
        device.sit(Self.background, .of(1000, "2"))
        let second = LoginSessions.Session.of(1000, "2", isLocked: true)
        device.sit(Self.background, second)
        device.feed(.login(.locked(second.name)))
        device.resumeDisk()
        device.expectPerson(nil)
    }

    @Test("a user signed out before a restart is not signed in when back in the foreground")
    func restartBeside() throws {
        device.sit(.of())
        try signOutByAdministrator()
        device.sit(Self.background, Self.bea, expecting: "bea")
        device.restart(afterPowerCut: false)
        device.sit(Self.background, Self.bea, expecting: "bea")
        device.sit(.of(), .of(1001, "2", name: "bea", isActive: false), expecting: nil)
        device.sit(.of(1000, "3", began: 1_002_000), expecting: "ada")
    }

    @Test("a restarted broker keeps the session of a running login and ends other ones")
    func restart() {
        device.sit(.of())
        let session = device.state.device.epoch
        device.restart()
        device.expectPerson("ada")
        device.sit(.of())
        device.expectEpoch(session)
        device.restart()
        device.sit(expecting: nil, signedOutBy: ["logout"])
        device.sit(.of(1000, "2", began: 1_000_500))
        device.restart()
        // Ada has logged out and in again during the restart.
        device.sit(.of(1000, "3", began: 1_002_000), expecting: "ada", signedOutBy: ["logout", "logout"])
    }

    @Test("a signed-out user needs a new login, even after a restart and a clock change", arguments: [false, true])
    func restartAfterSignOut(isSetBack: Bool) throws {
        let uptime = device.now.uptime
        let login = isSetBack ? LoginSessions.Session.of(began: 1_007_200, beganAwake: uptime) : .of()
        device.advance(by: .seconds(60))
        device.sit(login, expecting: "ada")
        device.advance(by: .seconds(60))
        try signOutByAdministrator()
        var locked = login
        locked.isLocked = true
        device.sit(locked)
        device.sit(login, expecting: nil)
        device.expectLoginProblem("has been signed out")
        device.advance(by: .seconds(9000))
        device.restart()
        device.sit(login, expecting: nil)
        let wall = device.now.wall.timeIntervalSince1970
        device.sit(.of(1000, "2", began: wall, beganAwake: device.now.uptime), expecting: "ada")
        // Without a restart, too.
        try signOutByAdministrator()
        device.sit()
        device.sit(.of(1000, "3", began: wall, beganAwake: device.now.uptime), expecting: "ada")
    }

    @Test("sessions survive without logind for a minute at most, also in a sleep")
    func silence() throws {
        let desk = device.app("desk")
        device.sit(.of())
        let session = device.state.device.epoch
        device.feed(.seat(nil))
        device.advance(by: .seconds(59))
        device.expectLoginProblem("logind does not respond")
        device.sit(.of())
        device.expectEpoch(session)
        device.expectLoginProblem(nil)
        device.feed(.seat(nil))
        device.advance(by: .seconds(30))
        device.feed(.seat(nil))
        device.advance(by: .seconds(31))
        device.expectPerson(nil, signedOutBy: ["logind does not respond"])
        device.sit(.of(1000, "2", began: 1_000_900), expecting: "ada")
        try device.expectAccount("ada", for: desk)
        device.feed(.seat(nil))
        device.sleep(for: .seconds(3700))
        try device.expectAccount(nil, for: desk)
    }

    @Test("a change of the identity setting signs out the account of the other kind")
    func changedIdentity() throws {
        let device = VirtualDevice()
        try device.signIn("ada", by: device.app("desk"))
        device.configure { $0.identity = .loginSession }
        device.expectPerson(nil)
        device.advance(by: .seconds(10))
        device.sit(.of(began: 1_000_005), expecting: "ada")
        device.configure { $0.identity = .embedded }
        device.expectPerson(nil, signedOutBy: ["the managed configuration", "the managed configuration"])
        try device.signIn("grace", by: device.app("desk"))
    }

    @Test("a device that must be joined first refuses the login and says so")
    func tenant() {
        device.configure { $0.requiresJoin = true }
        device.sit(.of(), expecting: nil)
        device.expectLoginProblem("joined")
        device.configure {
            $0.requiresJoin = false
            $0.tenantIdentifier = "Contoso"
        }
        #expect(device.state.device.account?.identifier == "uid-1000.contoso")
    }
}
