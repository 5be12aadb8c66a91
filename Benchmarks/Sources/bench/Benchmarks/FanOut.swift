/// One post and a hundred processes that observe it: from before the post until the last of them has it.
struct FanOut: Benchmark {
    let name = "fan-out"
    let summary = "time until the last of 100 listener processes has a post"

    private static let listeners = 100
    /// The first post of a burst comes from a process that has just started, and is not counted.
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

        // One round more than is counted, as in Alternation; the listeners tell their times when all is over.
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
                target: .atMost(1.1)
            )
        ]
    }

    private func result(_ values: [Double]) -> Result<Samples, BenchmarkError> {
        Samples(values).map { .success($0) } ?? .failure(BenchmarkError(.wrongCount, "nothing was posted"))
    }
}

/// Listeners of one contender, and the times at which they were posted to.
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

    /// For each post, the nanoseconds until the last listener had it. Throws `.peer` where one did not receive all.
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
