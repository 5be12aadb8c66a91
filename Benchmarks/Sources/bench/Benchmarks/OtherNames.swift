/// Whether posting becomes dearer when a third process observes many names that nobody posts.
struct OtherNames: Benchmark {
    let name = "other-names"
    let summary = "cost of a post with 10 000 other names registered, against none"

    private static let names = 10_000
    private static let posts = 25_000

    func rows(in setting: Setting) throws(BenchmarkError) -> [Row] {
        let stream = Stream(notification: "BenchPosted", posts: Self.posts)
        var registrar: Peer?
        defer { registrar?.stop() }
        // Every second round runs backwards, so the registrar comes up once for two measurements with it.
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
