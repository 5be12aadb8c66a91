/// One process posts, another observes and posts back. One notification is in flight at a time.
struct RoundTrip: Benchmark {
    let name = "round-trip"
    let summary = "post, observe, post back between two processes, one at a time"

    private static let roundTrips = 2000

    func rows(in setting: Setting) throws(BenchmarkError) -> [Row] {
        var entrants: [(title: String, contender: Contender, target: Target?)] = [
            ("round trip", setting.subject, .atMost(1.00))
        ]
        if let swift = setting.programs.swift {
            entrants[0].title = "round trip, .immediate"
            entrants.append(("round trip, default delivery", swift.defaultDelivery, .atMost(1.35)))
        }
        for case (let label, .some(let contender)) in setting.programs.otherLibraries {
            entrants.append(("round trip, \(label)", contender, nil))
        }

        let contenders = [setting.baseline] + entrants.map(\.contender)
        let results = try Alternation(rounds: setting.rounds(20), progress: setting.progress)
            .run(contenders: contenders.count) { index throws(BenchmarkError) in
                try nanosecondsPerRoundTrip(of: contenders[index], in: setting)
            }
        var rows = zip(entrants, results.dropFirst()).map { entrant, result in
            Row.comparing(
                entrant.title,
                of: self,
                unit: .nanoseconds,
                measured: (entrant.contender.label, result),
                baseline: (setting.baseline.label, results[0]),
                target: entrant.target
            )
        }
        for case (let label, nil) in setting.programs.otherLibraries {
            rows.append(Row(benchmark: name, title: "round trip, \(label)", outcome: .unavailable("not installed")))
        }
        return rows
    }

    private func nanosecondsPerRoundTrip(
        of contender: Contender,
        in setting: Setting
    ) throws(BenchmarkError) -> Double {
        try setting.bus.settle()
        let echo = try setting.start(contender, "echo", "BenchPing", "BenchPong")
        defer { echo.stop() }
        let ping = try setting.start(contender, "ping", "BenchPing", "BenchPong", "\(Self.roundTrips)")
        return Double(try ping.result().integer("median-ns"))
    }
}

/// One process posts as fast as it can, another observes. The time runs from before the first post until the observer
/// has the last.
struct Stream {
    let notification: String
    let posts: Int

    /// Returns the elapsed nanoseconds. The observer is `observer`, or another peer of the same contender. Throws
    /// `.wrongCount` unless the observer received every post.
    func nanoseconds(
        of contender: Contender,
        to observer: Contender? = nil,
        in setting: Setting
    ) throws(BenchmarkError) -> Double {
        let sink = try setting.start(observer ?? contender, "sink", notification, "\(posts)")
        defer { sink.stop() }
        let flood = try setting.start(contender, "flood", notification, "\(posts)")
        defer { flood.stop() }
        let sent = try flood.result()
        let received = try sink.result()
        let nanoseconds = try received.integer("last-ns") - sent.integer("start-ns")
        guard try received.integer("received") == posts, try sent.integer("posted") == posts, nanoseconds > 0 else {
            throw BenchmarkError(.wrongCount, "posted and received differ, or the clock ran backwards")
        }
        return Double(nanoseconds)
    }
}

/// The number of notifications per second that reach one observer, all of them counted.
struct Throughput: Benchmark {
    let name = "throughput"
    let summary = "posts a second from one process to one observer, each one received"

    private static let posts = 100_000

    func rows(in setting: Setting) throws(BenchmarkError) -> [Row] {
        let contenders = [setting.baseline, setting.subject]
        let stream = Stream(notification: "BenchStream", posts: setting.isQuick ? Self.posts / 2 : Self.posts)
        let results = try Alternation(rounds: setting.rounds(10), progress: setting.progress)
            .run(contenders: contenders.count) { index throws(BenchmarkError) in
                try setting.bus.settle()
                return try Double(stream.posts) * 1e9 / stream.nanoseconds(of: contenders[index], in: setting)
            }
        return [
            .comparing(
                "throughput to one observer",
                of: self,
                unit: .perSecond,
                measured: (contenders[1].label, results[1]),
                baseline: (contenders[0].label, results[0]),
                target: .atLeast(1.0)
            )
        ]
    }
}

/// The cost of a post while a third process observes many other names, against the cost without that process.
struct OtherNames: Benchmark {
    let name = "other-names"
    let summary = "cost of a post with 10 000 other names registered, against none"

    private static let names = 10_000
    private static let posts = 25_000

    func rows(in setting: Setting) throws(BenchmarkError) -> [Row] {
        let stream = Stream(notification: "BenchPosted", posts: Self.posts)
        var registrar: Peer?
        defer { registrar?.stop() }
        // Every second round runs backwards, so the registrar starts once for two measurements.
        let results = try Alternation(rounds: setting.rounds(16), progress: setting.progress)
            .run(contenders: 2) { index throws(BenchmarkError) in
                let withOthers = index == 1
                if !withOthers {
                    registrar?.stop()
                    registrar = nil
                } else if registrar == nil {
                    registrar = try setting.start(setting.subject, "register", "\(Self.names)", "BenchOther")
                }
                try setting.bus.settle(clients: withOthers ? 1 : 0)
                return try stream.nanoseconds(of: setting.subject, in: setting) / Double(Self.posts)
            }
        return [
            .comparing(
                "post, 10 000 other names registered",
                of: self,
                unit: .nanoseconds,
                measured: ("10 000", results[1]),
                baseline: ("none", results[0]),
                target: .atMost(1.1)
            )
        ]
    }
}

/// A hundred processes observe one name. The time runs from before a post until the last process has it.
struct FanOut: Benchmark {
    let name = "fan-out"
    let summary = "time until the last of 100 listener processes has a post"

    private static let listeners = 100
    /// The first post is not counted, because the poster has just started.
    private static let postsPerBurst = 9
    private static let microsecondsBetweenPosts = 25_000

    func rows(in setting: Setting) throws(BenchmarkError) -> [Row] {
        let audiences = [
            Audience(contender: setting.baseline, notification: "BenchFanOutA"),
            Audience(contender: setting.subject, notification: "BenchFanOutB"),
        ]
        let rounds = setting.rounds(24)
        try setting.bus.settle()
        setting.progress.note("starting \(audiences.count * Self.listeners) listeners")
        for audience in audiences {
            try audience.gather(Self.listeners, expecting: (rounds + 1) * Self.postsPerBurst, in: setting)
        }

        // One uncounted round more, as in Alternation. The listeners print their times at the end.
        for round in 0...rounds {
            setting.progress.round(round, of: rounds)
            for audience in round.isMultiple(of: 2) ? audiences : audiences.reversed() {
                try Interruption.check()
                let interval = "\(Self.microsecondsBetweenPosts)"
                let role = ["post", audience.notification, "\(Self.postsPerBurst)", interval]
                let poster = try Peer(audience.contender, role, on: setting.bus)
                try poster.waitUntilReady()
                audience.posted += try poster.result().integers("stamps")
            }
        }
        let results = try audiences.map { audience throws(BenchmarkError) in
            let latencies = try audience.latencies()
            let bursts = stride(from: Self.postsPerBurst, to: latencies.count, by: Self.postsPerBurst)
            return bursts.compactMap { Samples(Array(latencies[($0 + 1)..<($0 + Self.postsPerBurst)]))?.median }
        }
        return [
            .comparing(
                "fan-out to the last of 100 processes",
                of: self,
                unit: .nanoseconds,
                measured: (setting.subject.label, result(results[1])),
                baseline: (setting.baseline.label, result(results[0])),
                target: .atMost(1.08)
            )
        ]
    }

    private func result(_ values: [Double]) -> Result<Samples, BenchmarkError> {
        Samples(values).map { .success($0) } ?? .failure(BenchmarkError(.wrongCount, "nothing was posted"))
    }
}

/// Listeners of one contender, and the times of the posts to them.
private final class Audience {
    let contender: Contender
    let notification: String
    var posted: [Int] = []
    private var listeners: [Peer] = []

    init(contender: Contender, notification: String) {
        self.contender = contender
        self.notification = notification
    }

    func gather(_ count: Int, expecting posts: Int, in setting: Setting) throws(BenchmarkError) {
        for _ in 0..<count {
            listeners.append(try Peer(contender, ["listen", notification, "\(posts)"], on: setting.bus))
        }
        for listener in listeners { try listener.waitUntilReady() }
    }

    /// For each post, the nanoseconds until the last listener had it. Throws `.wrongCount` if a listener missed a post.
    func latencies() throws(BenchmarkError) -> [Double] {
        var last = posted
        for listener in listeners {
            let stamps = try listener.result().integers("stamps")
            guard stamps.count == posted.count, zip(stamps, posted).allSatisfy(>) else {
                throw BenchmarkError(.wrongCount, "a listener's receipts do not match the posts")
            }
            last = zip(last, stamps).map(max)
        }
        return zip(last, posted).map { Double($0 - $1) }
    }
}
