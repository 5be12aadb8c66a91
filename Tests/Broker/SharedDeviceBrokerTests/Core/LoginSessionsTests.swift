import Foundation
import SharedDevice
import Testing

@testable import SharedDeviceBroker

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
    @Test("a user's broker watches only that user's sessions at a seat")
    func userScope() {
        var sessions = LoginSessions(scope: .user(1000))
        let found = [
            sessions.found(.of(), at: "/mine"), sessions.found(.of(1001), at: "/other"),
            sessions.found(.of(seat: ""), at: "/remote"), sessions.found(.of(kind: "greeter"), at: "/greeter"),
            sessions.found(.of(type: "tty"), at: "/console"),
        ]
        #expect(found == [nil, nil, nil, nil, nil])
        let ended = ["/mine", "/other", "/remote", "/greeter", "/console", "/unknown"].map { sessions.removed($0) }
        #expect(ended == [.ended, nil, nil, nil, .ended, nil])
    }

    @Test("the machine's broker watches all users' graphical sessions of its seat")
    func seatScope() {
        var sessions = LoginSessions(scope: .seat("seat0"))
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

    @Test("a closing session is reported once and causes no further events")
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
    }

    @Test("a session that is missing from the list has ended")
    func listed() {
        var sessions = LoginSessions(scope: .user(1000))
        _ = sessions.found(.of(), at: "/one")
        _ = sessions.found(.of(), at: "/two")
        #expect(sessions.listed(["/two", "/three"]) == [.ended] && sessions.listed(["/two"]) == [])
    }

    struct Case: Sendable, CustomTestStringConvertible {
        let testDescription: String
        let sessions: [LoginSessions.Session]
        var staying: UInt32?
        let expected: UInt32?
    }

    static let cases = [
        Case(testDescription: "nobody is logged in", sessions: [], staying: 1000, expected: nil),
        Case(testDescription: "one person", sessions: [.of(1000)], expected: 1000),
        Case(testDescription: "a person at a text console", sessions: [.of(type: "tty")], expected: 1000),
        Case(testDescription: "over the network", sessions: [.of(seat: "")], expected: nil),
        Case(testDescription: "over the network, to a screen", sessions: [.of(isRemote: true)], expected: nil),
        Case(testDescription: "at another seat", sessions: [.of(seat: "seat1")], expected: nil),
        Case(testDescription: "the greeter", sessions: [.of(114, kind: "greeter")], expected: nil),
        Case(testDescription: "a lock screen of its own", sessions: [.of(kind: "lock-screen")], expected: nil),
        Case(testDescription: "a service of a user's", sessions: [.of(kind: "background")], expected: nil),
        Case(testDescription: "the user's own service manager", sessions: [.of(kind: "manager")], expected: nil),
        Case(
            testDescription: "before the home directory is there",
            sessions: [.of(kind: "user-incomplete")],
            expected: nil
        ),
        Case(
            testDescription: "a session that is brought up early",
            sessions: [.of(kind: "user-early")],
            expected: 1000
        ),
        Case(testDescription: "root at a console", sessions: [.of(0, type: "tty")], expected: nil),
        Case(
            testDescription: "root at a console in front of a person's desktop",
            sessions: [.of(0, "2", type: "tty"), .of(isActive: false)],
            staying: 1000,
            expected: 1000
        ),
        Case(
            testDescription: "has logged out, and a process is left",
            sessions: [.of(isClosing: true)],
            staying: 1000,
            expected: nil
        ),
        Case(
            testDescription: "the greeter is in front of the person who was there",
            sessions: [.of(isActive: false), .of(114, "c1", kind: "greeter")],
            staying: 1000,
            expected: 1000
        ),
        Case(
            testDescription: "another person is in front",
            sessions: [.of(isActive: false), .of(1001, "2")],
            staying: 1000,
            expected: 1001
        ),
        Case(
            testDescription: "the other person has logged out; the first is in the background, behind the greeter",
            sessions: [.of(isActive: false)],
            staying: 1001,
            expected: nil
        ),
        Case(
            testDescription: "two sessions of one person, the older one in the background",
            sessions: [.of(isActive: false), .of(1000, "2")],
            staying: 1000,
            expected: 1000
        ),
    ]

    @Test("the user at the seat follows from the login sessions", arguments: cases)
    func seat(_ row: Case) {
        var sessions = LoginSessions(scope: .seat("seat0"))
        for (number, session) in row.sessions.enumerated() { _ = sessions.found(session, at: "/\(number)") }
        #expect(sessions.seat.login(staying: row.staying)?.user == row.expected)
    }

    @Test("a login has all sessions of its user and begins with the first")
    func login() throws {
        let seat = Seat(sessions: [
            .of(1000, "2", began: 20), .of(1000, "1", began: 10), .of(1001, "3", isActive: false),
        ])
        let login = try #require(seat.login(staying: nil))
        #expect(login.sessions.map(\.identifier).sorted() == ["1", "2"])
        #expect(login.began == Date(timeIntervalSince1970: 10))
    }

    @Test("a login account is recognised by its identifier only")
    func account() throws {
        let login = try #require(Seat(sessions: [.of()]).login(staying: nil))
        #expect(login.account(tenant: nil).identifier == "uid-1000.login-session")
        #expect(login.account(tenant: "Contoso").identifier == "uid-1000.contoso")
        #expect(SeatLogin.user(of: login.account(tenant: "a.b")) == 1000)
        for name in ["ada@t", "uid-@t", "uid-x@t", "uid--1@t", "uid-99999999999@t", "1000@t"] {
            #expect(SeatLogin.user(of: .named(name)) == nil, "\(name)")
        }
    }
}
