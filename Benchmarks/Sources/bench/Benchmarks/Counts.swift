import Glibc

/// Instructions and allocations. They hardly vary between runs, even on a busy machine, so a regression shows in them
/// first.
///
/// A peer runs twice, with `turns` and with twice as many. The difference is the cost of `turns`, without start and
/// end.
struct Counts: Benchmark {
    let name = "counts"
    let summary = "instructions and allocations a hop and a registration, and instructions of notifyutil -p"
    let parts: Set<Part> = [.notify]

    private static let turns = 500

    /// A counted quantity, and the way to run a program for it.
    private enum Quantity: String, CaseIterable {
        case instructions
        case allocations

        /// The program with the counter, which writes the total to the file `log`.
        func counting(_ contender: Contender, log: String, in setting: Setting) -> Contender {
            var contender = contender
            switch self {
            case .instructions:
                contender.launcher = Self.valgrind(log: log)
            case .allocations:
                contender.environment["LD_PRELOAD"] = setting.programs.allocationCounter
                contender.environment["ALLOCATIONS_LOG"] = log
            }
            return contender
        }

        static func valgrind(log: String) -> [String] {
            guard let valgrind = bench.program("valgrind") else { return [] }
            return [valgrind, "--tool=callgrind", "--callgrind-out-file=/dev/null", "--log-file=\(log)"]
        }

        /// Reads the total from the counter's log. Throws `.malformedResult`.
        func total(in log: String) throws(BenchmarkError) -> Double {
            let words = (readText(log) ?? "").split { $0 == " " || $0 == "\n" }
            // Callgrind's line is “==PID== Collected : NUMBER”; the other log has only a number.
            let number = words.firstIndex(of: "Collected").map { $0 + 2 } ?? 0
            guard words.indices.contains(number), let total = Double(words[number]), total > 0 else {
                throw BenchmarkError(.malformedResult, "\(rawValue) were not counted: \(words.prefix(40))")
            }
            return total
        }
    }

    func rows(in setting: Setting) throws(BenchmarkError) -> [Row] {
        let folder = try makeFolder(in: "/tmp")
        let log = "\(folder)/log"
        defer {
            unlink(log)
            rmdir(folder)
        }
        let hops = [setting.baseline, setting.subject]
        let registrations = [setting.programs.calls, setting.programs.notify]
        var rows: [Row] = []
        for quantity in Quantity.allCases {
            let titles = ["\(quantity.rawValue) a hop", "\(quantity.rawValue) to register and cancel"]
            if quantity == .instructions, Quantity.valgrind(log: log).isEmpty {
                rows += titles.map {
                    Row(benchmark: name, title: $0, outcome: .unavailable("valgrind is not installed"))
                }
                continue
            }
            rows.append(
                try row(titles[0], hops, setting) { contender, turns throws(BenchmarkError) in
                    try hop(contender, turns: turns, counting: quantity, log: log, in: setting)
                }
            )
            rows.append(
                try row(titles[1], registrations, setting) { contender, turns throws(BenchmarkError) in
                    try churn(contender, turns: turns, counting: quantity, log: log, in: setting)
                }
            )
        }
        if let swift = setting.programs.swift {
            rows.append(try commandLine(swift, log: log, in: setting))
        }
        return rows
    }

    private func row(
        _ title: String,
        _ contenders: [Contender],
        _ setting: Setting,
        total: (Contender, Int) throws(BenchmarkError) -> Double
    ) throws(BenchmarkError) -> Row {
        setting.progress.note(title)
        let results = try Alternation(rounds: 2, progress: setting.progress)
            .run(contenders: contenders.count) { index throws(BenchmarkError) in
                let once = try total(contenders[index], Self.turns)
                let twice = try total(contenders[index], 2 * Self.turns)
                return (twice - once) / Double(Self.turns)
            }
        return .comparing(
            title,
            of: self,
            unit: .count,
            measured: (contenders[1].label, results[1]),
            baseline: (contenders[0].label, results[0])
        )
    }

    /// The total of a peer that receives `turns` posts and posts for each. Another peer, without a counter, posts back.
    private func hop(
        _ contender: Contender,
        turns: Int,
        counting quantity: Quantity,
        log: String,
        in setting: Setting
    ) throws(BenchmarkError) -> Double {
        try setting.bus.settle()
        let counted = quantity.counting(contender, log: log, in: setting)
        let echo = try setting.start(counted, "echo", "BenchPing", "BenchPong", "\(turns)")
        defer { echo.stop() }
        let posts = turns - Self.warmUpRoundTrips
        let ping = try setting.start(setting.baseline, "ping", "BenchPing", "BenchPong", "\(posts)")
        defer { ping.stop() }
        _ = try ping.result()
        try echo.waitForEnd()
        return try quantity.total(in: log)
    }

    /// The posts that `ping` makes in addition to the requested number, see Peers/roles.c.
    private static let warmUpRoundTrips = 200

    /// The total of a peer that registers and cancels a name. The peer does so a tenth more often than requested (see
    /// `time_calls` in Peers/common.h), so its total is divided by 1.1.
    private func churn(
        _ contender: Contender,
        turns: Int,
        counting quantity: Quantity,
        log: String,
        in setting: Setting
    ) throws(BenchmarkError) -> Double {
        try setting.bus.settle()
        let counted = quantity.counting(contender, log: log, in: setting)
        let peer = try setting.start(counted, "churn", "BenchChurn", "\(turns)")
        defer { peer.stop() }
        try peer.waitForEnd()
        return try quantity.total(in: log) / 1.1
    }

    /// The total of `notifyutil -p` against the total of `dbus-send`, from the first instruction of the dynamic linker.
    private func commandLine(_ swift: Programs.Swift, log: String, in setting: Setting) throws(BenchmarkError) -> Row {
        let title = "instructions of notifyutil -p"
        guard !Quantity.valgrind(log: log).isEmpty else {
            return Row(benchmark: name, title: title, outcome: .unavailable("valgrind is not installed"))
        }
        let commands = [WholeProcess.dbusSend(in: setting), WholeProcess.notifyutil(swift, in: setting)]
            .map { $0.launched(by: Quantity.valgrind(log: log)) }
        let results = try Alternation(rounds: 2, progress: setting.progress)
            .run(contenders: commands.count) { index throws(BenchmarkError) in
                let status = reap(try spawn(commands[index], Streams()))
                guard status == 0 else { throw BenchmarkError(.peer, "\(commands[index]) failed (status \(status))") }
                return try Quantity.instructions.total(in: log)
            }
        return .comparing(
            title,
            of: self,
            unit: .count,
            measured: ("notifyutil", results[1]),
            baseline: ("dbus-send", results[0])
        )
    }
}
