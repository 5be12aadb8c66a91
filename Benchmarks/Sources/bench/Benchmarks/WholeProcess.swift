/// One post from the command line, from the start of the program to its end.
struct WholeProcess: Benchmark {
    let name = "whole-process"
    let summary = "notifyutil posting once against dbus-send, from start to exit"

    private static let runsPerRound = 10
    private static let notification = "BenchCommand"

    func rows(in setting: Setting) throws(BenchmarkError) -> [Row] {
        let environment = ["DBUS_SESSION_BUS_ADDRESS": setting.bus.address]
        let dbusSend = Command(
            program: setting.programs.dbusSend,
            arguments: [
                "--session", "--type=signal", "/org/notifycenter",
                "org.notifycenter.Darwin1.\(Self.notification).Posted", "string:\(Self.notification)",
            ],
            environment: environment
        )
        let notifyutil = setting.programs.swift.map {
            Command(program: $0.notifyutil, arguments: ["-p", Self.notification], environment: environment)
        }
        let label = notifyutil == nil ? "dbus-send" : "notifyutil"
        let commands = [dbusSend, notifyutil ?? dbusSend]
        let title = "\(label) as a whole process"
        do throws(BenchmarkError) {
            for command in commands { try verify(command, in: setting) }
        } catch  where error.code == .interrupted {
            throw error
        } catch {
            return [Row(benchmark: name, title: title, outcome: .failed(error.description))]
        }

        // One sample is the median of several runs, taken in turn with the other command's.
        var pending: [[Double]] = [[], []]
        let results = try Alternation(rounds: setting.rounds(40), progress: setting.progress)
            .run(contenders: commands.count) { index throws(BenchmarkError) in
                if pending[index].isEmpty { pending = try timesInTurn(commands) }
                defer { pending[index] = [] }
                guard let samples = Samples(pending[index]) else {
                    throw BenchmarkError(.wrongCount, "nothing was run")
                }
                return samples.median
            }
        return [
            .comparing(
                title,
                of: self,
                unit: .nanoseconds,
                measured: (label, results[1]),
                baseline: ("dbus-send", results[0]),
                target: .atMost(1.3)
            )
        ]
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

    /// A command that posts nothing would be the fastest: it must reach an observer first.
    private func verify(_ command: Command, in setting: Setting) throws(BenchmarkError) {
        let sink = try setting.start(setting.baseline, "sink", Self.notification, "1")
        defer { sink.stop() }
        _ = try time(of: command)
        guard try sink.result().integer("received") == 1 else {
            throw BenchmarkError(.wrongCount, "\(command.program) posted, and nothing was observed")
        }
    }
}
