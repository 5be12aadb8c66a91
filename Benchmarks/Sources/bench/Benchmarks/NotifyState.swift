/// The state of a name, which notifyd keeps: read and written from C, against method calls to a plain service that keeps one number.
struct NotifyState: Benchmark {
    let name = "notify-state"
    let summary = "notify_get_state and notify_set_state from C, against plain method calls"

    private static let calls = 2_000

    func rows(in setting: Setting) throws(BenchmarkError) -> [Row] {
        try setting.bus.settle()
        let service = try setting.start(setting.programs.calls, "serve")
        defer { service.stop() }
        // It says nothing when it is ready; the peer waits for its first answer.
        let notifyd = try ChildProcess(
            Command(
                program: setting.programs.notifyd,
                arguments: ["--address", setting.bus.address],
                environment: ["DBUS_SESSION_BUS_ADDRESS": setting.bus.address]
            )
        )
        defer { notifyd.stop() }
        return try ["get", "set"].map { role throws(BenchmarkError) in
            let contenders = [setting.programs.calls, setting.programs.notify]
            let results = try Alternation(rounds: setting.rounds(16), progress: setting.progress)
                .run(contenders: contenders.count) { index throws(BenchmarkError) in
                    let peer = try setting.start(contenders[index], role, "BenchState", "\(Self.calls)")
                    defer { peer.stop() }
                    return Double(try peer.result().integer("median-ns"))
                }
            return .comparing(
                "notify_\(role)_state",
                of: self,
                unit: .nanoseconds,
                measured: (contenders[1].label, results[1]),
                baseline: (contenders[0].label, results[0])
            )
        }
    }
}
