/// Posts by notify(3) from C, as fast as they go, to an observer on plain libdbus; against the same observer with a poster of its kind.
struct NotifyPost: Benchmark {
    let name = "notify-post"
    let summary = "notify_post from C, against plain libdbus in C"

    private static let posts = 50_000

    func rows(in setting: Setting) throws(BenchmarkError) -> [Row] {
        let posters = [setting.programs.libdbus, setting.programs.notify]
        let stream = Stream(notification: "BenchNotifyPost", posts: Self.posts)
        let results = try Alternation(rounds: setting.rounds(16), progress: setting.progress)
            .run(contenders: posters.count) { index throws(BenchmarkError) in
                try setting.bus.settle()
                let nanoseconds = try stream.nanoseconds(
                    of: posters[index],
                    to: setting.programs.libdbus,
                    in: setting
                )
                return nanoseconds / Double(Self.posts)
            }
        return [
            .comparing(
                "notify_post",
                of: self,
                unit: .nanoseconds,
                measured: (posters[1].label, results[1]),
                baseline: (posters[0].label, results[0]),
                target: .atMost(1.1)
            )
        ]
    }
}
