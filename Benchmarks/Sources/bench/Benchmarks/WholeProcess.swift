/// One post from the command line, from the start of the program to its end.
struct WholeProcess: Benchmark {
    let name = "whole-process"
    let summary = "notifyutil posting once, against dbus-send and a static C program, from start to exit"
    let parts: Set<Part> = [.notify]

    private static let runsPerRound = 10
    static let notification = "BenchCommand"

    func rows(in setting: Setting) throws(BenchmarkError) -> [Row] {
        let dbusSend = Self.dbusSend(in: setting)
        let subject = setting.programs.swift.map { Self.notifyutil($0, in: setting) } ?? dbusSend
        let label = setting.programs.swift == nil ? "dbus-send" : "notifyutil"
        let title = "\(label) as a whole process"
        var commands = [dbusSend, subject]
        if let peer = setting.programs.staticLibdbus {
            commands.append(peer.command(["flood", Self.notification, "1"], address: setting.bus.address))
        }
        do throws(BenchmarkError) {
            for command in commands { try verify(command, in: setting) }
        } catch  where error.code == .interrupted {
            throw error
        } catch {
            return [Row(benchmark: name, title: title, outcome: .failed(error.description))]
        }

        // One sample is the median of several runs, which alternate with the runs of the other commands.
        var pending = [[Double]](repeating: [], count: commands.count)
        let results = try Alternation(rounds: setting.rounds(40), progress: setting.progress)
            .run(contenders: commands.count) { index throws(BenchmarkError) in
                if pending[index].isEmpty { pending = try timesInTurn(commands) }
                defer { pending[index] = [] }
                guard let samples = Samples(pending[index]) else {
                    throw BenchmarkError(.wrongCount, "nothing was run")
                }
                return samples.median
            }
        var rows = [
            Row.comparing(
                title,
                of: self,
                unit: .nanoseconds,
                measured: (label, results[1]),
                baseline: ("dbus-send", results[0]),
                target: .atMost(1.00)
            )
        ]
        let staticTitle = "the same, against C linked alike"
        if let peer = setting.programs.staticLibdbus {
            rows.append(
                .comparing(
                    staticTitle,
                    of: self,
                    unit: .nanoseconds,
                    measured: (label, results[1]),
                    baseline: (peer.label, results[2])
                )
            )
        } else {
            rows.append(Row(benchmark: name, title: staticTitle, outcome: .unavailable("there is no libdbus-1.a")))
        }
        return rows
    }

    static func dbusSend(in setting: Setting) -> Command {
        Command(
            program: setting.programs.dbusSend,
            arguments: [
                "--session", "--type=signal", "/org/notifycenter", "org.notifycenter.Darwin1.\(notification).Posted",
                "string:\(notification)",
            ],
            environment: ["DBUS_SESSION_BUS_ADDRESS": setting.bus.address]
        )
    }

    static func notifyutil(_ programs: Programs.Swift, in setting: Setting) -> Command {
        Command(
            program: programs.notifyutil,
            arguments: ["-p", notification],
            environment: ["DBUS_SESSION_BUS_ADDRESS": setting.bus.address]
        )
    }

    private func timesInTurn(_ commands: [Command]) throws(BenchmarkError) -> [[Double]] {
        var times = [[Double]](repeating: [], count: commands.count)
        for run in 0..<Self.runsPerRound {
            let order = Array(commands.indices)
            for index in run.isMultiple(of: 2) ? order : order.reversed() {
                try Interruption.check()
                times[index].append(try time(of: commands[index]))
            }
        }
        return times
    }

    private func time(of command: Command) throws(BenchmarkError) -> Double {
        let start = monotonicNanoseconds()
        let status = reap(try spawn(command, Streams()))
        let elapsed = monotonicNanoseconds() - start
        guard status == 0 else {
            throw BenchmarkError(.peer, "\(command.program) failed (wait status \(status))")
        }
        return Double(elapsed)
    }

    /// Checks that the command's post reaches an observer. A command that posts nothing would be the fastest.
    private func verify(_ command: Command, in setting: Setting) throws(BenchmarkError) {
        let sink = try setting.start(setting.baseline, "sink", Self.notification, "1")
        defer { sink.stop() }
        _ = try time(of: command)
        guard try sink.result().integer("received") == 1 else {
            throw BenchmarkError(.wrongCount, "\(command.program) posted, and nothing was observed")
        }
    }
}
