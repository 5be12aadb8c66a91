/// What the broker takes while a hundred apps are connected and have the account.
struct BrokerMemory: Benchmark {
    let name = "broker-memory"
    let summary = "memory of the broker with 100 apps connected and somebody signed in"

    private static let apps = 100

    func rows(in setting: Setting) throws(BenchmarkError) -> [Row] {
        var (resident, own): ([Double], [Double]) = ([], [])
        let rounds = 3
        for round in 1...rounds {
            setting.progress.round(round, of: rounds)
            try setting.bus.settle()
            let device = try Device(in: Device.disk, on: setting.bus, setting)
            // The one at which somebody signs in is one of them.
            try device.follow(Self.apps - 1)
            let desk = try device.signIn()
            defer { desk.stop() }
            let memory = try ResidentMemory.of(device.broker.processIdentifier)
            resident.append(Double(memory.resident))
            own.append(Double(memory.own))
        }
        return [("resident memory of the broker, \(Self.apps) apps", resident), ("memory of its own of it", own)]
            .map { title, values in
                .measuring(
                    title,
                    of: self,
                    unit: .bytes,
                    label: "ours",
                    result: Samples(values).map { .success($0) }
                        ?? .failure(BenchmarkError(.wrongCount, "no memory was read"))
                )
            }
    }
}
