import ArgumentParser
import Glibc

@main
struct Bench: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Measures notify-center against plain D-Bus programs, on a private bus.",
        discussion: """
            Prints one row for each figure: the median with the extremes, the same of the baseline, the median of the \
            ratios of each round, and the target. The exit status is 1 if a measurement failed. A missed target is \
            reported, and the exit status is 0.
            """
    )

    @Flag(help: "A fifth of the rounds: a first impression, too noisy to quote.")
    var quick = false

    @Flag(help: "Print every sample as JSON.")
    var json = false

    @Flag(help: "List the benchmarks and stop.")
    var list = false

    @Flag(help: ArgumentHelp("Print the parts that the benchmarks measure besides the peers.", visibility: .hidden))
    var parts = false

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
        if parts {
            for part in Set(chosen.flatMap(\.parts)) { print(part.rawValue) }
            return
        }
        Interruption.watch()
        // For two hundred listeners with a pipe each, and for the daemon, which inherits the limit.
        raiseDescriptorLimit(to: 4096)
        do {
            try measureAndReport()
        } catch let error as BenchmarkError where error.code == .interrupted {
            throw ExitCode(130)
        }
    }

    private var chosen: [any Benchmark] {
        names.isEmpty ? benchmarks : benchmarks.filter { names.contains($0.name) }
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
            programs: try Programs(folder: programs, subject: subject, parts: Set(chosen.flatMap(\.parts))),
            isQuick: quick,
            progress: progress
        )
        var rows: [Row] = []
        for (index, benchmark) in chosen.enumerated() {
            progress.begin(benchmark.name, index + 1, of: chosen.count)
            var new: [Row]
            do throws(BenchmarkError) {
                new = try benchmark.rows(in: setting)
            } catch  where error.code == .interrupted {
                throw error
            } catch {
                new = [Row(benchmark: benchmark.name, title: benchmark.name, outcome: .failed(error.description))]
            }
            progress.finish(new)
            rows += new
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
        // If this fails, opening a pipe fails later, and reports it.
        setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    }
}

extension Programs.Subject: ExpressibleByArgument {}

struct Machine: Encodable, CustomStringConvertible {
    let processors: Int
    let processor: String
    let kernel: String

    static func current() -> Machine {
        let description = readText("/proc/cpuinfo") ?? ""
        let model = description.split(separator: "\n").first { $0.hasPrefix("model name") }
        let name = model?.split(separator: ":", maxSplits: 1).last.map { $0.drop { $0 == " " } }
        let release = readText("/proc/sys/kernel/osrelease") ?? "unknown\n"
        return Machine(
            processors: Int(sysconf(Int32(_SC_NPROCESSORS_ONLN))),
            processor: name.map(String.init) ?? "unknown processor",
            kernel: String(release.prefix { $0 != "\n" })
        )
    }

    var description: String { "\(processors) × \(processor), Linux \(kernel)" }
}

/// Shows the progress on standard error: one line that is rewritten on a terminal, and a line for each finished
/// benchmark.
final class Progress {
    private let isTerminal = isatty(STDERR_FILENO) == 1
    private var heading = ""
    private var title = ""
    private var start = 0

    func begin(_ name: String, _ position: Int, of count: Int) {
        heading = "[\(position)/\(count)] \(name)"
        title = ""
        start = monotonicNanoseconds()
        note("")
    }

    /// Names the quantity that the following rounds measure.
    func note(_ text: String) {
        title = text
        show(text)
    }

    func round(_ round: Int, of rounds: Int) {
        show("\(title) \(round == 0 ? "warming up" : "round \(round) of \(rounds)")")
    }

    /// Ends the benchmark's line with its time and the number of missed targets.
    func finish(_ rows: [Row]) {
        let seconds = Double(monotonicNanoseconds() - start) / 1e9
        let missed = rows.count { $0.verdict == .missed }
        let failed = rows.count { $0.verdict == .failed }
        var line = "\(heading): \(fixed(seconds, digits: 0)) s"
        if missed > 0 { line += ", \(missed) missed" }
        if failed > 0 { line += ", \(failed) failed" }
        end()
        write("\(line)\n")
    }

    func end() {
        if isTerminal { write("\r\u{1B}[K") }
    }

    private func show(_ text: String) {
        if isTerminal { write("\r\u{1B}[K\(heading) \(text)") }
    }

    private func write(_ text: String) {
        var text = text
        // A failure is ignored: the table goes to standard output.
        text.withUTF8 { _ = Glibc.write(STDERR_FILENO, $0.baseAddress, $0.count) }
    }
}
