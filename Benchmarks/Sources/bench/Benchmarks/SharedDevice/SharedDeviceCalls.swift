/// What an app asks the broker while somebody is signed in, against method calls to a plain service.
struct SharedDeviceCalls: Benchmark {
    let name = "shared-device"
    let summary = "the current account and a token from the broker, against plain method calls"

    private static let calls = 2_000

    func rows(in setting: Setting) throws(BenchmarkError) -> [Row] {
        try setting.bus.settle()
        let service = try setting.start(setting.programs.calls, "serve")
        defer { service.stop() }
        let device = try Device(in: Device.disk, on: setting.bus, setting)
        let desk = try device.signIn()
        defer { desk.stop() }
        let requests: [(title: String, role: String, target: Target?)] = [
            ("getCurrentAccount", "account", .atMost(1.3)), ("acquireTokenSilent, cached", "token", nil),
        ]
        let results = try Alternation(rounds: setting.rounds(16), progress: setting.progress)
            .run(contenders: 1 + requests.count) { index throws(BenchmarkError) in
                if index > 0 {
                    return try device.nanosecondsPerRequest(requests[index - 1].role, count: Self.calls)
                }
                let peer = try setting.start(setting.programs.calls, "get", "BenchState", "\(Self.calls)")
                defer { peer.stop() }
                return Double(try peer.result().integer("median-ns"))
            }
        return zip(requests, results.dropFirst()).map { request, result in
            .comparing(
                request.title,
                of: self,
                unit: .nanoseconds,
                measured: ("ours", result),
                baseline: (setting.programs.calls.label, results[0]),
                target: request.target
            )
        }
    }
}
