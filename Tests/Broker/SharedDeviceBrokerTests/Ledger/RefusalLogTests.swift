import Testing

@testable import SharedDeviceBroker

@Suite("How many refusals get into the log")
struct RefusalLimiterTests {
    @Test("so many of an app and a reason are logged in a minute, and the rest in one entry")
    func limit() {
        var limiter = RefusalLimiter(limit: 3)
        var verdicts: [RefusalLimiter.Verdict] = []
        for turn in 0..<420 { verdicts.append(limiter.note(app: "a", code: "x", at: 100 + Double(turn) / 10)) }
        #expect(verdicts.prefix(3) == [.log, .log, .log])
        guard case .countAndSummarize(let delay) = verdicts[3] else {
            Issue.record("the first that is only counted has its summary made")
            return
        }
        #expect(abs(delay - 59.7) < 0.001)
        #expect(verdicts.dropFirst(4).allSatisfy { $0 == .count })
        let early = limiter.summaries(at: 159)
        #expect(early.isEmpty)
        let summaries = limiter.summaries(at: 160)
        #expect(summaries == [.init(app: "a", code: "x", count: 417)])
        #expect(summaries.first?.detail == "x … and 417 more")
        let again = limiter.summaries(at: 1000)
        #expect(again.isEmpty, "said once")
    }

    @Test("apps and reasons do not use up each other's share")
    func keys() {
        var limiter = RefusalLimiter(limit: 1)
        for (app, code) in [("a", "x"), ("b", "x"), ("a", "y")] {
            let verdict = limiter.note(app: app, code: code, at: 0)
            #expect(verdict == .log)
        }
        let verdict = limiter.note(app: "a", code: "x", at: 1)
        #expect(verdict == .countAndSummarize(after: 59))
    }

    @Test("a new minute begins with the first refusal after the old one")
    func nextWindow() {
        var limiter = RefusalLimiter(limit: 1)
        let first = limiter.note(app: "a", code: "x", at: 0)
        let second = limiter.note(app: "a", code: "x", at: 60)
        let third = limiter.note(app: "a", code: "x", at: 61)
        #expect(first == .log && second == .log && third == .countAndSummarize(after: 59))
    }

    @Test("a window with a summary to come counts on until that is made")
    func lateSummary() {
        var limiter = RefusalLimiter(limit: 1)
        var verdicts: [RefusalLimiter.Verdict] = []
        for time in [0.0, 1, 65] { verdicts.append(limiter.note(app: "a", code: "x", at: time)) }
        #expect(verdicts == [.log, .countAndSummarize(after: 59), .count])
        let summaries = limiter.summaries(at: 66)
        #expect(summaries.map(\.count) == [2])
        let next = limiter.note(app: "a", code: "x", at: 67)
        #expect(next == .log)
    }

    @Test("made-up names do not get around the limit, nor fill the memory")
    func manyNames() {
        var limiter = RefusalLimiter(limit: 2)
        var logged = 0
        for number in 0..<5000 {
            if limiter.note(app: "app \(number)", code: "x", at: 0) == .log { logged += 1 }
        }
        #expect(logged <= RefusalLimiter.keys + 2)
        let summaries = limiter.summaries(at: 61)
        #expect(summaries.map(\.app) == [RefusalLimiter.others])
        let after = limiter.note(app: "app 4999", code: "x", at: 62)
        #expect(after == .log)
    }
}

@Suite("What other processes say, for the log")
struct ForeignTextTests {
    @Test("one character of any length is cut, too")
    func combining() {
        let long = "e" + String(repeating: "\u{301}", count: 100_000)
        #expect(long.count == 1)
        #expect(long.shortened(to: 500).unicodeScalars.count == 500)
        #expect(long.forLog(200).unicodeScalars.count == 200)
        #expect("Grüße 👩‍🌾".shortened(to: 500) == "Grüße 👩‍🌾")
    }

    @Test("it stays on its line")
    func lines() {
        #expect(
            "org.example.a\n2026 notice: signed in\u{1B}[2J".forLog(200)
                == "org.example.a\u{FFFD}2026 notice: signed in\u{FFFD}[2J"
        )
    }
}
