import Testing

@testable import SharedDeviceBroker

@Suite("Which login sessions matter, and what they tell")
struct LoginSessionsTests {
    private func session(
        user: UInt32 = 1000,
        seat: String = "seat0",
        type: String = "wayland",
        of kind: String = "user",
        isLocked: Bool = false
    ) -> LoginSessions.Session {
        LoginSessions.Session(userID: user, seat: seat, type: type, sessionClass: kind, isLocked: isLocked)
    }

    @Test("a user's broker minds that user's sessions at a seat, and no other")
    func userScope() {
        var sessions = LoginSessions(scope: .user(1000))
        let found = [
            sessions.found(session(), at: "/mine"), sessions.found(session(user: 1001), at: "/other"),
            sessions.found(session(seat: ""), at: "/remote"), sessions.found(session(of: "greeter"), at: "/greeter"),
            sessions.found(session(type: "tty"), at: "/console"),
        ]
        #expect(found == [nil, nil, nil, nil, nil])
        let ended = ["/mine", "/other", "/remote", "/greeter", "/console", "/unknown"].map { sessions.removed($0) }
        #expect(ended == [.ended, nil, nil, nil, .ended, nil])
    }

    @Test("the machine's broker minds the graphical sessions of the seat, whoever's they are")
    func seatScope() {
        var sessions = LoginSessions(scope: .seat("seat0"))
        _ = sessions.found(session(user: 1001), at: "/other")
        _ = sessions.found(session(type: "tty"), at: "/console")
        _ = sessions.found(session(seat: "seat1"), at: "/elsewhere")
        #expect(["/other", "/console", "/elsewhere"].map { sessions.lockRequested(at: $0) } == [.locked, nil, nil])
    }

    @Test("a lock counts when it comes, not while it lasts")
    func locks() {
        var sessions = LoginSessions(scope: .user(1000))
        let events = [
            sessions.found(session(isLocked: true), at: "/mine"), sessions.found(session(isLocked: true), at: "/mine"),
            sessions.setLocked(true, at: "/mine"), sessions.setLocked(false, at: "/mine"),
            sessions.setLocked(true, at: "/mine"), sessions.setLocked(true, at: "/unknown"),
        ]
        #expect(events == [.locked, nil, nil, nil, .locked, nil])
    }

    @Test("a session that is missing from the list has ended")
    func listed() {
        var sessions = LoginSessions(scope: .user(1000))
        _ = sessions.found(session(), at: "/one")
        _ = sessions.found(session(), at: "/two")
        #expect(sessions.listed(["/two", "/three"]) == [.ended])
        #expect(sessions.listed(["/two"]) == [])
    }
}
