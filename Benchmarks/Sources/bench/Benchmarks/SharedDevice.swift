/// A sign-out that waits for all apps, against the same messages between as many programs on libdbus that do no work.
struct SignOut: Benchmark {
    let name = "sign-out"
    let summary = "from a sign-out to the last app's receipt, with 1, 10 and 100 apps"
    let parts: Set<Part> = [.sharedDevice]

    private static let audiences = [1, 10, 100]
    /// Few, because the sign-in before each takes longer than the sign-out.
    private static let signOutsPerRound = 3
    private static let exchangesPerRound = 20

    func rows(in setting: Setting) throws(BenchmarkError) -> [Row] {
        try setting.bus.settle()
        // A bus has one broker, so the second device needs a second bus.
        let bus = try PrivateBus()
        // No target: the disk's speed is not the project's. The rows in memory have the target.
        let onDisk = try Device(in: Device.disk, on: setting.bus, setting)
        var devices: [(title: String, device: Device, target: Target?)] = [("sign-out to last receipt", onDisk, nil)]
        if let memory = Device.memory {
            devices.append(("the same, state in memory", try Device(in: memory, on: bus, setting), .atMost(1.5)))
        }
        var rows: [Row] = []
        for apps in Self.audiences {
            setting.progress.note("starting \(apps) apps")
            // The app that signs out is one of them.
            for (_, device, _) in devices { try device.follow(apps - 1) }
            let exchange = try Exchange(apps, setting)
            defer { exchange.stop() }
            let results = try Alternation(rounds: setting.rounds(5), progress: setting.progress)
                .run(contenders: 1 + devices.count) { index throws(BenchmarkError) in
                    guard index > 0 else { return try exchange.nanosecondsPerSignOut(count: Self.exchangesPerRound) }
                    return try devices[index - 1].device.nanosecondsPerSignOut(count: Self.signOutsPerRound)
                }
            for (index, (title, _, target)) in devices.enumerated() {
                rows.append(
                    .comparing(
                        "\(title), \(apps) \(apps == 1 ? "app" : "apps")",
                        of: self,
                        unit: .nanoseconds,
                        measured: ("ours", results[index + 1]),
                        baseline: (setting.baseline.label, results[0]),
                        target: target
                    )
                )
            }
        }
        return rows
    }
}

/// The programs on libdbus that exchange the messages of a sign-out.
private struct Exchange {
    private let setting: Setting
    private let peers: [Peer]

    /// Starts the device, and all apps except the one that signs out.
    init(_ apps: Int, _ setting: Setting) throws(BenchmarkError) {
        self.setting = setting
        var peers = [try setting.start(setting.programs.signOut, "device", "\(apps)")]
        for _ in 1..<apps { peers.append(try setting.start(setting.programs.signOut, "app")) }
        self.peers = peers
    }

    func stop() { for peer in peers { peer.stop() } }

    func nanosecondsPerSignOut(count: Int) throws(BenchmarkError) -> Double {
        let peer = try setting.start(setting.programs.signOut, "sign-out", "\(count)")
        defer { peer.stop() }
        return Double(try peer.result().integer("median-ns"))
    }
}

/// An app's requests to the broker during a session, against method calls to a plain service.
struct SharedDeviceCalls: Benchmark {
    let name = "shared-device"
    let summary = "the current account and a token from the broker, against plain method calls"
    let parts: Set<Part> = [.sharedDevice]

    private static let calls = 2_000

    func rows(in setting: Setting) throws(BenchmarkError) -> [Row] {
        try setting.bus.settle()
        let service = try setting.start(setting.programs.calls, "serve")
        defer { service.stop() }
        let device = try Device(in: Device.disk, on: setting.bus, setting)
        let desk = try device.signIn()
        defer { desk.stop() }
        let requests: [(title: String, role: String, target: Target?)] = [
            ("getCurrentAccount", "account", .atMost(1.25)), ("acquireTokenSilent, cached", "token", .atMost(1.5)),
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

/// The memory of the broker while a hundred apps are connected and have the account.
struct BrokerMemory: Benchmark {
    let name = "broker-memory"
    let summary = "memory of the broker with 100 connected apps and a signed-in account"
    let parts: Set<Part> = [.sharedDevice]

    private static let apps = 100

    func rows(in setting: Setting) throws(BenchmarkError) -> [Row] {
        var (resident, own): ([Double], [Double]) = ([], [])
        let rounds = 3
        for round in 1...rounds {
            setting.progress.round(round, of: rounds)
            try setting.bus.settle()
            let device = try Device(in: Device.disk, on: setting.bus, setting)
            // The app that signs in is one of them.
            try device.follow(Self.apps - 1)
            let desk = try device.signIn()
            defer { desk.stop() }
            let memory = try ResidentMemory.of(device.broker.processIdentifier)
            resident.append(Double(memory.resident))
            own.append(Double(memory.own))
        }
        let figures: [(String, [Double], Target?)] = [
            ("resident memory of the broker, \(Self.apps) apps", resident, .figureAtMost(20e6)),
            ("private memory of the broker, \(Self.apps) apps", own, nil),
        ]
        return figures.map { title, values, target in
            .measuring(
                title,
                of: self,
                unit: .bytes,
                label: "ours",
                result: Samples(values).map { .success($0) }
                    ?? .failure(BenchmarkError(.wrongCount, "no memory was read")),
                target: target
            )
        }
    }
}
