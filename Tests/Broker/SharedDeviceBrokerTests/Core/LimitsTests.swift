import Basics
import Testing

@testable import BrokerCore

@Suite("The password throttle")
struct PasswordThrottleTests {
    private func after(_ seconds: Int) -> Duration { .seconds(1000 + seconds) }

    @Test("five attempts may fail, and then one each 30 s until all failures are forgotten")
    func sixth() {
        var throttle = PasswordThrottle()
        let waits = [0, 1, 2, 3, 4, 5, 33, 34, 35].map { throttle.admit("ada", of: 1, at: after($0)) }
        let expected: [Duration?] = [nil, nil, nil, nil, nil, .seconds(25), nil, .seconds(26), .seconds(25)]
        #expect(waits == expected)
        let admitted = [95, 300].map { time in
            (0..<5).count { _ in throttle.admit("ada", of: 1, at: after(time)) == nil }
        }
        #expect(admitted == [2, 5])
    }

    // S5
    @Test("failures count per name and per user, but not without a verdict")
    func keys() {
        var throttle = PasswordThrottle()
        for _ in 0..<5 { _ = throttle.admit("ada", of: 1, at: after(0)) }
        let others = [throttle.admit("grace", of: 1, at: after(0)), throttle.admit("ada", of: 2, at: after(0))]
        throttle.succeeded("ada", of: 2, at: after(0))
        #expect(others == [nil, nil] && throttle.admit("ada", of: 1, at: after(0)) == .seconds(30))
        throttle = PasswordThrottle()
        let refused = (0..<200).count { _ in
            defer { throttle.cancelled("ada", of: 1, at: after(0)) }
            return throttle.admit("ada", of: 1, at: after(0)) != nil
        }
        #expect(refused == 0 && throttle.count == 0)
    }

    // S5
    @Test("a user who tries many names is throttled, also between correct passwords")
    func spraying() {
        var throttle = PasswordThrottle()
        let admitted = (0..<100).count { throttle.admit("name\($0)", of: 1, at: after(0)) == nil }
        #expect(admitted == PasswordThrottle.allowedOfUser)
        #expect(throttle.admit("ada", of: 2, at: after(0)) == nil)
        // From here on one name is admitted each 30 s.
        let later = (0..<300).count { throttle.admit("other\($0)", of: 1, at: after(1 + $0)) == nil }
        #expect(later == 10)
        // A correct password waits until one failure is forgotten.
        #expect(throttle.admit("ada", of: 1, at: after(329)) == .seconds(1))
        for number in 0..<20 {
            #expect(throttle.admit("person\(number)", of: 1, at: after(330)) == nil)
            throttle.succeeded("person\(number)", of: 1, at: after(330))
        }
        // A correct password does not earn attempts with other names.
        throttle = PasswordThrottle()
        let among = (0..<100).count { number in
            defer {
                if throttle.admit("own", of: 3, at: after(0)) == nil { throttle.succeeded("own", of: 3, at: after(0)) }
            }
            return throttle.admit("name\(number)", of: 3, at: after(0)) == nil
        }
        #expect(among == PasswordThrottle.allowedOfUser)
    }

    @Test("mistyped passwords at one busy kiosk throttle no user")
    func kiosk() {
        var throttle = PasswordThrottle()
        // 200 people in an hour. Every third person mistypes the password once or twice before the correct one.
        for person in 0..<200 {
            let time = after(18 * person)
            let slips = person.isMultiple(of: 3) ? 1 + person % 2 : 0
            let waits = (0...slips).map { _ in throttle.admit("name\(person)", of: 1, at: time) }
            #expect(waits.allSatisfy { $0 == nil })
            throttle.succeeded("name\(person)", of: 1, at: time)
        }
        #expect(throttle.count == 0)
    }

    @Test("a flood of names takes bounded memory and releases no throttled name")
    func flood() {
        var throttle = PasswordThrottle()
        for number in 0..<100_000 { _ = throttle.admit("name\(number)", of: 1, at: after(number)) }
        #expect(throttle.count <= PasswordThrottle.allowedOfUser)
        for number in 1...5 { _ = throttle.admit("ada", of: 1, at: after(100_000 + 30 * number)) }
        for _ in 1...5 { _ = throttle.admit("ada", of: 2, at: after(100_150)) }
        for number in 0..<2000 { _ = throttle.admit("other\(number)", of: 1, at: after(100_151)) }
        #expect(throttle.admit("ada", of: 1, at: after(100_152)) != nil)
        #expect(throttle.admit("ada", of: 2, at: after(100_152)) == .seconds(28))
    }
}

@Suite("Rate limit")
struct RateLimitTests {
    @Test("a key that has all of its turns again is discarded")
    func memory() {
        var limit = RateLimit<Int>(burst: 16, every: .seconds(15))
        for key in 0..<100 { limit.take(key, at: .zero) }
        #expect(limit.count == 100)
        limit.take(100, at: .seconds(15))
        #expect(limit.count == 1)
    }
}

@Suite("Rate limit of log entries")
struct LogLimiterTests {
    private func at(_ seconds: Double) -> Duration { .seconds(seconds) }

    @Test("excess entries of an app and reason become one summary a minute")
    func limit() {
        var limiter = LogLimiter(limit: 3)
        let verdicts = (0..<420).map { limiter.admits(1, "a", "x", at: at(100 + Double($0) / 10)) }
        #expect(verdicts.prefix(3).allSatisfy { $0 } && !verdicts.dropFirst(3).contains(true))
        #expect(limiter.nextSummary == at(160))
        let summaries = [159, 160, 1000].map { limiter.summaries(at: at($0)) }
        #expect(summaries == [[], [.init(app: "a", reason: "x", count: 417)], []], "said once")
        #expect(summaries[1].first?.detail == "x … and 417 more" && limiter.nextSummary == nil)
    }

    @Test("users, apps and reasons have separate limits")
    func keys() {
        var limiter = LogLimiter(limit: 1)
        let keys: [(UInt32, String, String)] = [
            (1, "a", "x"), (1, "b", "x"), (1, "a", "y"), (2, "a", "x"), (1, "a", "x"),
        ]
        let isAdmitted = keys.map { limiter.admits($0, $1, $2, at: .zero) }
        #expect(isAdmitted == [true, true, true, true, false] && limiter.nextSummary == at(60))
    }

    @Test("a new window begins after the old one, and after its summary if one is pending")
    func nextWindow() {
        var limiter = LogLimiter(limit: 1)
        let verdicts = [0.0, 60, 61].map { limiter.admits(1, "a", "x", at: at($0)) }
        #expect(verdicts == [true, true, false] && limiter.nextSummary == at(120))
        var late = LogLimiter(limit: 1)
        let lateVerdicts = [0.0, 1, 65].map { late.admits(1, "a", "x", at: at($0)) }
        let summaries = late.summaries(at: at(66)).map(\.count)
        let next = late.admits(1, "a", "x", at: at(67))
        #expect(lateVerdicts == [true, false, false] && summaries == [2] && next)
    }

    // S2
    @Test("made-up names do not evade the limit, fill memory or use up others' limits")
    func manyNames() {
        var limiter = LogLimiter(limit: 2)
        let logged = (0..<5000).count { limiter.admits(1, "app \($0)", "x", at: .zero) }
        let other = limiter.admits(2, "a", "x", at: .zero)
        let summaries = limiter.summaries(at: at(61)).map(\.app)
        let after = limiter.admits(1, "app 4999", "x", at: at(62))
        #expect(logged <= LogLimiter.windowsOfUser + 2)
        #expect(other && summaries == [LogLimiter.others] && after)
    }
}

@Suite("Text from other processes in the log")
struct ForeignTextTests {
    // S16
    @Test("text is cut by scalars, and cannot break its line or change the direction")
    func lines() {
        let long = "e" + String(repeating: "\u{301}", count: 100_000)
        #expect(long.count == 1 && long.printable(500).unicodeScalars.count == 501)
        #expect("Grüße an alle".printable(500) == "Grüße an alle")
        let line = "org.example.a\n2026 notice: signed in\u{1B}[2J".printable(200)
        #expect(line == "org.example.a\u{FFFD}2026 notice: signed in\u{FFFD}[2J")
        let scalars = ["\u{2028}", "\u{2029}", "\u{85}", "\u{202E}", "\u{0}"].map { $0.printable(9) }
        #expect(scalars == Array(repeating: "\u{FFFD}", count: 5))
        let credentials = AppCredentials(user: 7, executable: "/tmp/a\nbroker: signed in")
        let caller = Caller(connection: ":1.1", credentials: credentials, process: 42, isAdministrator: false)
        #expect(caller.program == "/tmp/a\u{FFFD}broker: signed in, pid 42, uid 7")
    }
}
