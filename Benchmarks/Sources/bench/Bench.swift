import ArgumentParser
import Glibc

/// The command line of the benchmarks.
@main
struct Bench: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Measures notify-center against plain D-Bus programs, on a private bus.",
        discussion: """
            Prints one row for each figure: the median with the extremes, the same of the baseline, the median of the \
            ratios of each round, and the target. A missed target is reported and is not an error; the exit status is \
            1 where a measurement broke off.
            """
    )

    @Flag(help: "A fifth of the rounds: a first impression, too noisy to quote.")
    var quick = false

    @Flag(help: "Print every sample as JSON.")
    var json = false

    @Flag(help: "List the benchmarks and stop.")
    var list = false

    @Option(
        help: ArgumentHelp(
            "The peer to measure against libdbus: swift, libdbus, sdbus or gdbus.",
            discussion: "With libdbus the baseline runs against itself, which shows how far ratios stray by chance."
        )
    )
    var subject = Programs.Subject.swift

    @Option(help: "The folder with the peers and notifyutil.")
    var programs: String

    @Argument(help: "The benchmarks to run; all of them by default.")
    var names: [String] = []

    func validate() throws {
        for name in names where !benchmarks.contains(where: { $0.name == name }) {
            let known = benchmarks.map(\.name).joined(separator: ", ")
            throw ValidationError("There is no benchmark \"\(name)\". There are: \(known).")
        }
    }

    func run() throws {
        if list {
            for benchmark in benchmarks { print("\(benchmark.name): \(benchmark.summary)") }
            return
        }
        Interruption.watch()
        // A hundred listeners on either side, each with a pipe, and the daemon inherits the limit.
        raiseDescriptorLimit(to: 4096)
        do {
            try measureAndReport()
        } catch let error as BenchmarkError where error.code == .interrupted {
            throw ExitCode(130)
        }
    }

    private func measureAndReport() throws {
        let start = monotonicNanoseconds()
        let rows = try measure()
        let seconds = Double(monotonicNanoseconds() - start) / 1e9
        print(try report(rows, seconds: seconds), terminator: "")
        if rows.contains(where: { $0.verdict == .failed }) { throw ExitCode.failure }
    }

    private func measure() throws(BenchmarkError) -> [Row] {
        let progress = Progress()
        defer { progress.end() }
        let setting = Setting(
            bus: try PrivateBus(),
            programs: try Programs(folder: programs, subject: subject),
            isQuick: quick,
            progress: progress
        )
        let chosen = names.isEmpty ? benchmarks : benchmarks.filter { names.contains($0.name) }
        var rows: [Row] = []
        for (index, benchmark) in chosen.enumerated() {
            progress.begin(benchmark.name, index + 1, of: chosen.count)
            do throws(BenchmarkError) {
                rows += try benchmark.rows(in: setting)
            } catch  where error.code == .interrupted {
                throw error
            } catch {
                rows.append(
                    Row(benchmark: benchmark.name, title: benchmark.name, outcome: .failed(error.description))
                )
            }
        }
        return rows
    }

    private func report(_ rows: [Row], seconds: Double) throws -> String {
        let machine = Machine.current()
        if json { return try JSONReport(rows: rows, machine: machine, seconds: seconds).text() }
        let colour = isatty(STDOUT_FILENO) == 1 && getenv("NO_COLOR") == nil
        let judged = rows.filter { $0.verdict == .met || $0.verdict == .missed }
        let met = judged.count { $0.verdict == .met }
        return """
            \(machine)

            \(Table(rows: rows, colour: colour).text)
            \(met) of \(judged.count) targets met, in \(fixed(seconds, digits: 0)) s. \
            Medians (minimum–maximum) over the rounds; a ratio is formed within its round.

            """
    }

    private func raiseDescriptorLimit(to wanted: rlim_t) {
        var limit = rlimit()
        guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0, limit.rlim_cur < wanted else {
            return
        }
        limit.rlim_cur = min(wanted, limit.rlim_max)
        // Where it fails, the pipe that finds no descriptor says so.
        setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    }
}

extension Programs.Subject: ExpressibleByArgument {}
