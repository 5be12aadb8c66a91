import Foundation
import SharedDevice
import Testing

@testable import BrokerCore

extension LoginSessions.Session {
    /// A session in the foreground of the seat. A test overrides the properties that it needs.
    ///
    /// - Parameter began: in seconds, on the clock of a ``VirtualDevice``, which begins at 1,000,000.
    static func of(
        _ user: UInt32 = 1000,
        _ identifier: String = "1",
        name: String = "ada",
        seat: String = "seat0",
        type: String = "wayland",
        kind: String = "user",
        began: Double = 1_000_000,
        beganAwake: Duration? = nil,
        isActive: Bool = true,
        isLocked: Bool = false,
        isRemote: Bool = false,
        isClosing: Bool = false
    ) -> Self {
        Self(
            identifier: identifier,
            userID: user,
            userName: name,
            seat: seat,
            type: type,
            sessionClass: kind,
            began: Date(timeIntervalSince1970: began),
            beganAwake: beganAwake,
            isActive: isActive,
            isLocked: isLocked,
            isRemote: isRemote,
            isClosing: isClosing
        )
    }
}

@Suite("Which login sessions matter, and which events they cause")
struct LoginSessionsTests {
    @Test("a broker watches the sessions of its user, or all graphical ones of its seat")
    func scope() {
        var sessions = LoginSessions(scope: .user(1000))
        let found = [
            sessions.found(.of(), at: "/mine"), sessions.found(.of(1001), at: "/other"),
            sessions.found(.of(seat: ""), at: "/remote"), sessions.found(.of(kind: "greeter"), at: "/greeter"),
            sessions.found(.of(type: "tty"), at: "/console"),
        ]
        #expect(found == [nil, nil, nil, nil, nil])
        let ended = ["/mine", "/other", "/remote", "/greeter", "/console", "/unknown"].map { sessions.removed($0) }
        #expect(ended == [.ended, nil, nil, nil, .ended, nil])
        sessions = LoginSessions(scope: .seat("seat0"))
        let other = LoginSessions.Session.of(1001).name
        _ = sessions.found(.of(1001), at: "/other")
        _ = sessions.found(.of(type: "tty"), at: "/console")
        _ = sessions.found(.of(seat: "seat1"), at: "/elsewhere")
        let requested = ["/other", "/console", "/elsewhere"].map { sessions.lockRequested(at: $0) }
        #expect(requested == [.locked(other), nil, nil])
        #expect(["/other", "/console", "/elsewhere"].map { sessions.removed($0) } == [.ended, nil, nil])
    }

    @Test("a lock is an event only when it begins")
    func locks() {
        var sessions = LoginSessions(scope: .user(1000))
        let events = [
            sessions.found(.of(isLocked: true), at: "/mine"), sessions.found(.of(isLocked: true), at: "/mine"),
            sessions.setLocked(true, at: "/mine"), sessions.setLocked(false, at: "/mine"),
            sessions.setLocked(true, at: "/mine"), sessions.setLocked(true, at: "/unknown"),
        ]
        let locked = LoginEvent.locked(LoginSessions.Session.of().name)
        #expect(events == [locked, nil, nil, nil, locked, nil])
    }

    @Test("a session that closes or leaves the list has ended, once, without further events")
    func closing() {
        var sessions = LoginSessions(scope: .seat("seat0"))
        _ = sessions.found(.of(), at: "/ada")
        #expect(sessions.found(.of(isClosing: true), at: "/ada") == .ended)
        let events = [
            sessions.setLocked(true, at: "/ada"), sessions.lockRequested(at: "/ada"),
            sessions.found(.of(isLocked: true, isClosing: true), at: "/ada"),
        ]
        #expect(events == [nil, nil, nil])
        #expect(sessions.removed("/ada") == nil)
        #expect(sessions.found(.of(isClosing: true), at: "/grace") == nil, "it was over before")
        sessions = LoginSessions(scope: .user(1000))
        _ = sessions.found(.of(), at: "/one")
        _ = sessions.found(.of(), at: "/two")
        #expect(sessions.listed(["/two", "/three"]) == [.ended] && sessions.listed(["/two"]) == [])
    }

    @Test("the user at the seat follows from the login sessions")
    func seat() {
        let cases: [(name: String, sessions: [LoginSessions.Session], staying: UInt32?, expected: UInt32?)] = [
            ("no user is logged in", [], 1000, nil),
            ("one person", [.of(1000)], nil, 1000),
            ("a person at a text console", [.of(type: "tty")], nil, 1000),
            ("over the network", [.of(seat: "")], nil, nil),
            ("over the network, to a screen", [.of(isRemote: true)], nil, nil),
            ("at another seat", [.of(seat: "seat1")], nil, nil),
            ("the greeter", [.of(114, kind: "greeter")], nil, nil),
            ("a separate lock screen", [.of(kind: "lock-screen")], nil, nil),
            ("a user's service", [.of(kind: "background")], nil, nil),
            ("the user's service manager", [.of(kind: "manager")], nil, nil),
            ("before the home directory exists", [.of(kind: "user-incomplete")], nil, nil),
            ("a session that is brought up early", [.of(kind: "user-early")], nil, 1000),
            ("root at a console", [.of(0, type: "tty")], nil, nil),
            ("root at a console before a desktop", [.of(0, "2", type: "tty"), .of(isActive: false)], 1000, 1000),
            ("logged out, and a process is left", [.of(isClosing: true)], 1000, nil),
            ("the greeter in front", [.of(isActive: false), .of(114, "c1", kind: "greeter")], 1000, 1000),
            ("another person in front", [.of(isActive: false), .of(1001, "2")], 1000, 1001),
            ("the other person has left, and the first is behind the greeter", [.of(isActive: false)], 1001, nil),
            ("a second session of one person in front", [.of(isActive: false), .of(1000, "2")], 1000, 1000),
        ]
        for (name, list, staying, expected) in cases {
            var sessions = LoginSessions(scope: .seat("seat0"))
            for (number, session) in list.enumerated() { _ = sessions.found(session, at: "/\(number)") }
            #expect(sessions.seat.login(staying: staying)?.user == expected, "\(name)")
        }
    }

    @Test("a login has all sessions of its user, and its account is known by its identifier")
    func login() throws {
        let seat = Seat(sessions: [
            .of(1000, "2", began: 20), .of(1000, "1", began: 10), .of(1001, "3", isActive: false),
        ])
        let login = try #require(seat.login(staying: nil))
        #expect(login.sessions.map(\.identifier).sorted() == ["1", "2"])
        #expect(login.began == Date(timeIntervalSince1970: 10))
        #expect(login.account(tenant: nil).identifier == "uid-1000.login-session")
        #expect(login.account(tenant: "Contoso").identifier == "uid-1000.contoso")
        #expect(SeatLogin.user(of: login.account(tenant: "a.b")) == 1000)
        for name in ["ada@t", "uid-@t", "uid-x@t", "uid--1@t", "uid-99999999999@t", "1000@t"] {
            #expect(SeatLogin.user(of: .named(name)) == nil, "\(name)")
        }
    }
}
