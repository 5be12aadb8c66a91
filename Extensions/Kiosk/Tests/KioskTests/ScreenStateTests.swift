import CommandParts
import DBus
import Foundation
@_spi(Extensions) import SharedDevice
import Testing

@testable import KioskScreen

@Suite("What the screen shows, and what keys mean")
struct ScreenStateTests {
    private let texts = Texts(.english)
    private let now = ContinuousClock.now
    private let time = Date()

    private func state(
        _ show: ScreenContent,
        reason: SessionEnd.Reason? = nil,
        methods: [BrokerProtocol.SignInMethod] = [.password, .badge],
        asksForBadge: Bool = true
    ) -> ScreenState {
        var state = ScreenState(asksForBadge: asksForBadge)
        state.take(answer(show, reason: reason, methods: methods), time: time, now: now)
        return state
    }

    private func answer(
        _ show: ScreenContent,
        reason: SessionEnd.Reason? = nil,
        methods: [BrokerProtocol.SignInMethod] = [.password, .badge]
    ) -> ScreenAnswer {
        ScreenAnswer(
            revision: 1,
            show: show,
            end: reason.map { SessionEnd(at: time.addingTimeInterval(75), reason: $0, isSoon: true) },
            username: "ada",
            displayName: "Ada Lovelace",
            signInMethods: methods
        )
    }

    /// Types a text and Return, with this many milliseconds between the keys. `nil` touches the keys of the screen.
    private func type(_ text: String, every pause: UInt32?, _ state: inout ScreenState) -> ScreenRequest? {
        var time = pause.map { _ in UInt32.max - 100 }
        for character in text {
            time = time.map { $0 &+ (pause ?? 0) }
            #expect(state.press(.text(String(character)), at: time, now: now) == nil)
        }
        return state.press(.enter, at: time.map { $0 &+ (pause ?? 0) }, now: now)
    }

    private func lines(_ state: ScreenState, after wait: Duration = .zero) -> [String] {
        state.picture(texts, now: now + wait).lines.map(\.text)
    }

    private func fields(_ request: ScreenRequest?) -> [String: String]? {
        guard case .signIn(let credentials)? = request else { return nil }
        return credentials.fields.compactMapValues(\.stringValue)
    }

    @Test("a warning of inactivity counts down, and a key keeps the person signed in")
    func warning() {
        var state = state(.warning, reason: .inactivity)
        #expect(lines(state) == ["This device is not in use. Time left: 1:15", "Stay signed in"])
        #expect(lines(state, after: .milliseconds(70_500)).first?.hasSuffix("0:05") == true)
        #expect(lines(state, after: .seconds(100)).first?.hasSuffix("0:00") == true)
        guard case .stay? = state.press(.text("x"), at: 1, now: now) else {
            Issue.record("the key has no effect")
            return
        }
        #expect(state.press(.text("x"), at: 2, now: now) == nil, "one request at a time")
        // The wait for that response hinders no sign-in.
        var lock = state
        lock.take(answer(.lock), time: time, now: now)
        #expect(type("2468", every: 150, &lock) != nil)
        state.finishStay()
        #expect(state.press(.text("x"), at: 3, now: now) != nil)
    }

    @Test("a warning that no activity averts has no button")
    func shiftEnd() {
        var state = state(.warning, reason: .shiftEnd)
        #expect(lines(state) == ["The shift ends: you will be signed out in 1:15. Save your work."])
        #expect(state.press(.enter, at: 1, now: now) == nil)
        // Where it is a window, it is above the person's work.
        #expect(state.shown == .nothing, "any key hides it")
        state.tick(now + .seconds(100))
        state.take(answer(.warning, reason: .shiftEnd), time: time, now: now)
        #expect(state.shown == .nothing)
        state.take(answer(.warning, reason: .longestSession), time: time, now: now)
        #expect(state.shown == .warning)
    }

    @Test("slow digits are a PIN, as all are without badges; other text is a password")
    func kinds() {
        let cases: [(text: String, pause: UInt32?, methods: [BrokerProtocol.SignInMethod], kind: String)] = [
            ("2468", 150, [.password, .badge], "pin"), ("123456789012", 150, [.password, .badge], "pin"),
            ("123", 150, [.password, .badge], "password"), ("1234567890123", 150, [.password, .badge], "password"),
            ("a5", 150, [.password, .badge], "password"), ("2468", nil, [.password, .badge], "pin"),
            ("2468", 20, [.password], "pin"),
        ]
        for (text, pause, methods, kind) in cases {
            var state = state(.lock, methods: methods)
            #expect(lines(state).contains { $0.contains("badge") } == methods.contains(.badge))
            let request = type(text, every: pause, &state)
            #expect(fields(request) == ["username": "ada", kind: text], "\(text), \(String(describing: pause))")
        }
    }

    @Test("quick text with a Return is a badge, and then a PIN is asked for")
    func badge() {
        var state = state(.lock)
        // The number replaces the text before it.
        _ = state.press(.text("9"), at: 0, now: now)
        #expect(type("04A1B2C3", every: 20, &state) == nil)
        #expect(lines(state).prefix(2) == ["Badge read", "Type in your PIN."])
        #expect(fields(type("2468", every: 150, &state)) == ["badge": "04A1B2C3", "pin": "2468"])
        #expect(lines(state).contains("One moment, please."))
    }

    @Test("another badge replaces the one whose PIN is asked for")
    func secondBadge() {
        var state = state(.signIn)
        _ = type("04A1B2C3", every: 20, &state)
        #expect(type("99999999", every: 20, &state) == nil)
        #expect(fields(type("2468", every: 150, &state)) == ["badge": "99999999", "pin": "2468"])
    }

    @Test("a number may be typed by hand on the sign-in screen, and Escape goes back")
    func typedBadge() {
        var state = state(.signIn)
        #expect(lines(state) == ["Sign in", "Hold your badge to the reader.", "Esc: sign in in the app"])
        #expect(type("04A1B2C3", every: 200, &state) == nil)
        #expect(lines(state).first == "Badge read")
        _ = state.press(.escape, at: 9, now: now)
        #expect(lines(state).first == "Sign in")
    }

    @Test("Escape on the empty sign-in uncovers the app for a minute, or until a lock")
    func roomForApp() {
        var state = state(.signIn)
        #expect(state.press(.escape, at: 1, now: now) == nil)
        #expect(state.shown == .nothing && state.isTimed)
        state.tick(now + .seconds(59))
        #expect(state.shown == .nothing)
        state.tick(now + .seconds(61))
        #expect(state.shown == .signIn)
        _ = state.press(.escape, at: 2, now: now)
        state.take(answer(.lock), time: time, now: now)
        #expect(state.shown == .lock)
        _ = state.press(.escape, at: 3, now: now)
        #expect(state.shown == .lock, "Escape hides no lock")
    }

    @Test("a cleanup or another person's sign-in covers the screen, which takes no text")
    func covers() {
        var state = state(.cleanup, asksForBadge: false)
        #expect(state.shown == .cleanup && state.picture(texts, now: now).kind == .cover)
        #expect(lines(state) == ["One moment: the last person's data is being deleted."])
        #expect(type("04A1B2C3", every: 20, &state) == nil)
        state.take(answer(.lock), time: time, now: now)
        #expect(lines(state).first == "Ada Lovelace")
        _ = type("04A1B2C3", every: 20, &state)
        _ = type("2468", every: 150, &state)
        // The cover stays until the broker has responded.
        for show in [ScreenContent.cleanup, .signIn, .nothing] {
            state.take(answer(show), time: time, now: now)
            #expect(state.picture(texts, now: now).kind == .cover, "\(show)")
            #expect(lines(state).contains("One moment, please.") && !lines(state).contains("Ada Lovelace"), "\(show)")
        }
        state.finish(nil, now: now)
        #expect(state.shown == .nothing)
    }

    @Test("a lock without a name asks for a badge only")
    func unnamedLock() {
        var state = ScreenState(asksForBadge: false)
        state.take(ScreenAnswer(revision: 1, show: .lock, signInMethods: [.badge]), time: time, now: now)
        #expect(lines(state) == ["Hold your badge to the reader."])
        #expect(type("04A1B2C3", every: 200, &state) == nil)
        #expect(fields(type("2468", every: 150, &state)) == ["badge": "04A1B2C3", "pin": "2468"])
    }

    @Test("typed text is shown as dots, is erased by the character, and is bounded")
    func typed() {
        var state = state(.lock)
        // A control character does not count.
        for text in ["7", "\u{1b}", "ß", "é"] { _ = state.press(.text(text), at: nil, now: now) }
        let picture = state.picture(texts, now: now)
        #expect(picture.lines.contains { $0.dots == 3 })
        #expect(!picture.lines.contains { line in ["7", "ß", "é"].contains { line.text.contains($0) } })
        _ = state.press(.erase, at: nil, now: now)
        #expect(fields(state.press(.enter, at: nil, now: now)) == ["username": "ada", "password": "7ß"])
        var endless = self.state(.lock)
        for _ in 0..<3000 { _ = endless.press(.text("x"), at: nil, now: now) }
        #expect(fields(endless.press(.enter, at: nil, now: now))?["password"]?.count == 1024)
    }

    @Test("text that was left behind, or typed on another person's screen, is forgotten")
    func forgotten() {
        var left = state(.signIn)
        _ = type("04A1B2C3", every: 20, &left)
        left.tick(now + .seconds(29))
        #expect(lines(left).first == "Badge read")
        left.tick(now + .seconds(31))
        #expect(lines(left).first == "Sign in")
        var other = state(.lock)
        _ = other.press(.text("2468"), at: nil, now: now)
        other.take(answer(.signIn), time: time, now: now)
        #expect(other.press(.enter, at: nil, now: now) == nil)
    }

    @Test("a refusal is shown until the next key, or for 30 seconds")
    func refusal() {
        var state = state(.lock)
        _ = type("2468", every: 150, &state)
        #expect(type("1357", every: 150, &state) == nil)
        state.finish(SharedDeviceError(.authenticationFailed, attempted: "sign in", message: "secret detail"), now: now)
        let text = "That was not correct, or you may not sign in here."
        #expect(lines(state).contains(text))
        state.take(answer(.lock), time: time, now: now)
        #expect(lines(state).contains(text))
        var later = state
        later.tick(now + .seconds(31))
        #expect(!lines(later).contains(text))
        _ = state.press(.text("1"), at: nil, now: now)
        #expect(!lines(state).contains(text))
    }

    @Test("without the broker a lock stays, and a warning goes")
    func lost() {
        var (lock, warning) = (state(.lock), state(.warning, reason: .inactivity))
        lock.lose()
        warning.lose()
        #expect(lock.shown == .lock && lines(lock).contains { $0.contains("does not respond") })
        #expect(warning.shown == .nothing)
        // A lock of the program's last run must not end because the broker is away.
        var first = ScreenState(asksForBadge: true)
        first.lose()
        #expect(!first.hasAnswer && lock.hasAnswer)
    }

    @Test(
        "the sign-in is shown only if it is wanted and the device takes badges",
        arguments: [true, false],
        [false, true]
    )
    func signIn(_ isWanted: Bool, _ takesBadges: Bool) {
        let state = state(.signIn, methods: takesBadges ? [.badge] : [.password], asksForBadge: isWanted)
        #expect((state.shown == .signIn) == (isWanted && takesBadges))
        #expect((state.picture(texts, now: now).kind == .cover) == (isWanted && takesBadges))
    }
}
