/// notify_check in a C program on the shared library: its time and its system calls.
struct NotifyCheck: Benchmark {
    let name = "notify-check"
    let summary = "notify_check from C: nanoseconds, and system calls"
    let parts: Set<Part> = [.notify]

    private static let checks = 10_000_000

    func rows(in setting: Setting) throws(BenchmarkError) -> [Row] {
        var systemCalls: [Double] = []
        let results = try Alternation(rounds: setting.rounds(20), progress: setting.progress)
            .run(contenders: 1) { _ throws(BenchmarkError) in
                try setting.bus.settle()
                let peer = try setting.start(setting.programs.notify, "check", "BenchCheck", "\(Self.checks)")
                defer { peer.stop() }
                let result = try peer.result()
                // The first check reports “posted”, the others do not.
                guard try result.integer("answers") == 1 else {
                    throw BenchmarkError(.wrongCount, "not exactly the first notify_check reported a post")
                }
                systemCalls.append(Double(try result.integer("system-calls")))
                return Double(try result.integer("elapsed-ns")) / Double(Self.checks)
            }
        let counted = results[0].flatMap { _ in
            Samples(systemCalls).map { .success($0) }
                ?? .failure(BenchmarkError(.wrongCount, "no system calls were counted"))
        }
        let label = setting.programs.notify.label
        return [
            .measuring(
                "notify_check",
                of: self,
                unit: .nanoseconds,
                label: label,
                result: results[0],
                target: .atMost(10)
            ),
            .measuring(
                "system calls in 10 000 000 of them",
                of: self,
                unit: .count,
                label: label,
                result: counted,
                target: .atMost(0)
            ),
        ]
    }
}

/// notify_post from C as fast as it can, against a poster on plain libdbus. Both observers are on plain libdbus.
struct NotifyPost: Benchmark {
    let name = "notify-post"
    let summary = "notify_post from C, against plain libdbus in C"
    let parts: Set<Part> = [.notify]

    private static let posts = 50_000

    func rows(in setting: Setting) throws(BenchmarkError) -> [Row] {
        let posters = [setting.programs.libdbus, setting.programs.notify]
        let stream = Stream(notification: "BenchNotifyPost", posts: Self.posts)
        let results = try Alternation(rounds: setting.rounds(10), progress: setting.progress)
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

/// notify_register_check and notify_cancel from C: one name, very many registrations of one name, and several threads
/// at once.
struct NotifyRegistration: Benchmark {
    let name = "notify-registration"
    let summary = "notify_register_check and notify_cancel from C: one, 50 000 of a name, 100 000 from 4 threads"
    let parts: Set<Part> = [.notify]

    private static let turns = 2_000
    private static let duplicates = 50_000
    private static let parallel = 100_000

    func rows(in setting: Setting) throws(BenchmarkError) -> [Row] {
        var rows = [try one("register and cancel, notifyd absent", target: .atMost(1.20), setting)]
        do {
            try setting.bus.settle()
            let notifyd = try setting.startNotifyd()
            defer { notifyd.stop() }
            rows.append(
                try one("register and cancel, notifyd running", target: .atMost(1.50), besides: 1, setting)
            )
        }
        return try rows + [
            many("50 000 duplicate registrations", "duplicates", Self.duplicates, rounds: 10, target: 1e9, setting),
            many(
                "100 000 register, post, cancel in 4 threads",
                "parallel",
                Self.parallel,
                rounds: 2,
                target: 10e9,
                setting
            ),
        ]
    }

    /// The process has no other registration of the name, so each one needs a request to the bus. `besides` is the
    /// number of clients that stay connected.
    private func one(
        _ title: String,
        target: Target,
        besides: Int = 0,
        _ setting: Setting
    ) throws(BenchmarkError) -> Row {
        let contenders = [setting.programs.calls, setting.programs.notify]
        let results = try Alternation(rounds: setting.rounds(16), progress: setting.progress)
            .run(contenders: contenders.count) { index throws(BenchmarkError) in
                try setting.bus.settle(clients: besides)
                let peer = try setting.start(contenders[index], "churn", "BenchChurn", "\(Self.turns)")
                defer { peer.stop() }
                return Double(try peer.result().integer("median-ns"))
            }
        return .comparing(
            title,
            of: self,
            unit: .nanoseconds,
            measured: (contenders[1].label, results[1]),
            baseline: (contenders[0].label, results[0]),
            target: target
        )
    }

    private func many(
        _ title: String,
        _ role: String,
        _ count: Int,
        rounds: Int,
        target: Double,
        _ setting: Setting
    ) throws(BenchmarkError) -> Row {
        let results = try Alternation(rounds: setting.rounds(rounds), progress: setting.progress)
            .run(contenders: 1) { _ throws(BenchmarkError) in
                try setting.bus.settle()
                let peer = try setting.start(setting.programs.notify, role, "BenchMany", "\(count)")
                defer { peer.stop() }
                return Double(try peer.result().integer("elapsed-ns"))
            }
        return .measuring(
            title,
            of: self,
            unit: .nanoseconds,
            label: setting.programs.notify.label,
            result: results[0],
            target: .atMost(target)
        )
    }
}

/// notify_get_state and notify_set_state from C, with the state in notifyd, against method calls to a plain service
/// that keeps one number.
struct NotifyState: Benchmark {
    let name = "notify-state"
    let summary = "notify_get_state and notify_set_state from C, against plain method calls"
    let parts: Set<Part> = [.notify]

    private static let calls = 2_000

    func rows(in setting: Setting) throws(BenchmarkError) -> [Row] {
        try setting.bus.settle()
        let service = try setting.start(setting.programs.calls, "serve")
        defer { service.stop() }
        let notifyd = try setting.startNotifyd()
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
                baseline: (contenders[0].label, results[0]),
                target: .atMost(1.25)
            )
        }
    }
}
