/// One process observes many names, with all requests in flight at once. The time ends when the bus has responded to
/// each.
struct Registration: Benchmark {
    let name = "registration"
    let summary = "time to register 10 000 names in one process"

    private static let names = 10_000

    func rows(in setting: Setting) throws(BenchmarkError) -> [Row] {
        let contenders = [setting.baseline, setting.subject]
        let results = try Alternation(rounds: setting.rounds(12), progress: setting.progress)
            .run(contenders: contenders.count) { index throws(BenchmarkError) in
                try setting.bus.settle()
                let peer = try setting.start(contenders[index], "register", "\(Self.names)", "BenchName")
                defer { peer.stop() }
                return Double(try peer.result().integer("elapsed-ns"))
            }
        return [
            .comparing(
                "registration of 10 000 names",
                of: self,
                unit: .nanoseconds,
                measured: (contenders[1].label, results[1]),
                baseline: (contenders[0].label, results[0]),
                target: .atMost(1.20)
            )
        ]
    }
}

/// Very many registrations of one name in one process, which share one match rule at the bus.
struct SameName: Benchmark {
    let name = "same-name"
    let summary = "100 000 registrations of one name in one process: time, and memory of each"

    private static let registrations = 100_000

    func rows(in setting: Setting) throws(BenchmarkError) -> [Row] {
        let title = "100 000 registrations of one name"
        let memoryTitle = "memory of each of them"
        guard setting.programs.swift != nil else {
            let outcome = Row.Outcome.unavailable("only our own peer has this role")
            return [title, memoryTitle].map { Row(benchmark: name, title: $0, outcome: outcome) }
        }
        var bytes: [Double] = []
        let results = try Alternation(rounds: setting.rounds(10), progress: setting.progress)
            .run(contenders: 1) { _ throws(BenchmarkError) in
                try setting.bus.settle()
                let one = try setting.start(setting.subject, "idle", "BenchSame")
                defer { one.stop() }
                let many = try setting.start(setting.subject, "same", "BenchSame", "\(Self.registrations)")
                defer { many.stop() }
                let elapsed = try many.result().integer("elapsed-ns")
                let base = try ResidentMemory.of(one.processIdentifier).own
                let all = try ResidentMemory.of(many.processIdentifier).own
                bytes.append(Double(all - base) / Double(Self.registrations - 1))
                return Double(elapsed)
            }
        let memory = results[0].flatMap { _ in
            Samples(bytes).map { .success($0) } ?? .failure(BenchmarkError(.wrongCount, "no memory was read"))
        }
        return [
            .measuring(
                title,
                of: self,
                unit: .nanoseconds,
                label: setting.subject.label,
                result: results[0],
                target: .atMost(1e9)
            ),
            .measuring(memoryTitle, of: self, unit: .bytes, label: setting.subject.label, result: memory),
        ]
    }
}

/// The memory of a process that observes one name and waits. The project's program has libdbus linked statically, as
/// notifyutil has. One C program is linked as usual, another one statically.
struct Memory: Benchmark {
    let name = "memory"
    let summary = "memory of a process that observes one name, and of a second observer"

    func rows(in setting: Setting) throws(BenchmarkError) -> [Row] {
        let subject = setting.programs.swift?.staticLibdbus ?? setting.subject
        let contenders = [setting.baseline, subject] + (setting.programs.staticLibdbus.map { [$0] } ?? [])
        // An Alternation measures one number. The others are collected here, and cut to the same rounds.
        var own = [[Double]](repeating: [], count: contenders.count)
        var second = own
        let rounds = setting.rounds(5)
        let resident = try Alternation(rounds: rounds, progress: setting.progress)
            .run(contenders: contenders.count) { index throws(BenchmarkError) in
                try setting.bus.settle()
                let peer = try setting.start(contenders[index], "idle", "BenchIdle")
                defer { peer.stop() }
                let memory = try ResidentMemory.of(peer.processIdentifier)
                own[index].append(Double(memory.own))
                let other = try setting.start(contenders[index], "idle", "BenchIdle")
                defer { other.stop() }
                second[index].append(Double(try ResidentMemory.of(other.processIdentifier).own))
                return Double(memory.resident)
            }
        func results(_ values: [[Double]]) -> [Result<Samples, BenchmarkError>] {
            zip(resident, values).map { resident, values in
                resident.flatMap { _ in
                    Samples(values.suffix(rounds)).map { .success($0) }
                        ?? .failure(BenchmarkError(.wrongCount, "no memory was read"))
                }
            }
        }
        var rows: [Row] = []
        let measurements: [(title: String, results: [Result<Samples, BenchmarkError>], target: Target?)] = [
            ("resident memory, one observer", resident, .atMost(2.2)),
            ("private memory, one observer", results(own), .figureAtMost(3e6)),
            ("private memory, a second observer", results(second), nil),
        ]
        for (title, results, target) in measurements {
            for baseline in contenders.indices where baseline != 1 {
                rows.append(
                    .comparing(
                        baseline == 0 ? title : "the same, against C linked alike",
                        of: self,
                        unit: .bytes,
                        measured: (contenders[1].label, results[1]),
                        baseline: (contenders[baseline].label, results[baseline]),
                        target: baseline == 0 ? target : nil
                    )
                )
            }
        }
        return rows
    }
}

/// The memory of a process as the kernel counts it, in bytes.
struct ResidentMemory: Equatable {
    /// Every resident page, with shared libraries in full.
    let resident: Int
    /// Pages that no other process maps at this moment, including pages of the program's own file.
    let own: Int

    /// Parses the text of `/proc/PID/smaps_rollup`. `nil` if a line is missing.
    init?(smapsRollup text: String) {
        var kilobytes: [Substring: Int] = [:]
        for line in text.split(separator: "\n") {
            let words = line.split(separator: " ")
            guard words.count == 3, words[2] == "kB", let value = Int(words[1]) else { continue }
            kilobytes[words[0]] = value
        }
        guard let resident = kilobytes["Rss:"], let clean = kilobytes["Private_Clean:"],
            let dirty = kilobytes["Private_Dirty:"]
        else { return nil }
        self.resident = resident * 1024
        own = (clean + dirty) * 1024
    }

    /// Throws `.systemCall` if the kernel does not report it.
    static func of(_ process: Int32) throws(BenchmarkError) -> ResidentMemory {
        let path = "/proc/\(process)/smaps_rollup"
        guard let text = readText(path), let memory = ResidentMemory(smapsRollup: text) else {
            throw BenchmarkError(.systemCall, "\(path) cannot be read, or has no Rss and Private lines")
        }
        return memory
    }
}
