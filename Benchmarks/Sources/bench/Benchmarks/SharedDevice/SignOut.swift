/// A sign-out that waits for all apps, against a post that as many processes answer with one call each.
struct SignOut: Benchmark {
    let name = "sign-out"
    let summary = "from a sign-out to the last app's receipt, with 1, 10 and 100 apps"

    private static let audiences = [1, 10, 100]
    /// Each needs somebody signed in, which takes longer than what is measured.
    private static let signOutsPerRound = 3
    private static let postsPerRound = 20
    private static let notification = "BenchCollect"

    func rows(in setting: Setting) throws(BenchmarkError) -> [Row] {
        try setting.bus.settle()
        // One broker serves a bus: the other one has a bus of its own.
        let bus = try PrivateBus()
        var devices = [("sign-out to last receipt", try Device(in: Device.disk, on: setting.bus, setting))]
        if let memory = Device.memory {
            devices.append(("the same, state in memory", try Device(in: memory, on: bus, setting)))
        }
        var receivers: [Peer] = []
        defer { for receiver in receivers { receiver.stop() } }

        var rows: [Row] = []
        for apps in Self.audiences {
            setting.progress.note("starting \(apps) apps")
            // The app that signs out is one of them.
            for (_, device) in devices { try device.follow(apps - 1) }
            while receivers.count < apps {
                receivers.append(try setting.start(setting.programs.calls, "reply", Self.notification))
            }
            let results = try Alternation(rounds: setting.rounds(10), progress: setting.progress)
                .run(contenders: 1 + devices.count) { index throws(BenchmarkError) in
                    guard index > 0 else { return try nanosecondsToCollect(apps, in: setting) }
                    return try devices[index - 1].1.nanosecondsPerSignOut(count: Self.signOutsPerRound)
                }
            for (index, (title, _)) in devices.enumerated() {
                rows.append(
                    .comparing(
                        "\(title), \(apps) \(apps == 1 ? "app" : "apps")",
                        of: self,
                        unit: .nanoseconds,
                        measured: ("ours", results[index + 1]),
                        baseline: (setting.baseline.label, results[0])
                    )
                )
            }
        }
        return rows
    }

    private func nanosecondsToCollect(_ receivers: Int, in setting: Setting) throws(BenchmarkError) -> Double {
        let posts = "\(Self.postsPerRound)"
        let peer = try setting.start(setting.programs.calls, "collect", Self.notification, "\(receivers)", posts)
        defer { peer.stop() }
        return Double(try peer.result().integer("median-ns"))
    }
}
