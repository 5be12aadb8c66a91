/// A benchmark, which yields one or a few rows of the table.
protocol Benchmark: Sendable {
    /// The word that selects it on the command line.
    var name: String { get }
    /// The measured quantity, for `--list`.
    var summary: String { get }
    /// The parts of the project that it measures in addition to the peers.
    var parts: Set<Part> { get }

    /// Measures. A contender that fails becomes a row with the reason. Throws `.interrupted`, and errors that leave
    /// nothing to report.
    func rows(in setting: Setting) throws(BenchmarkError) -> [Row]
}

extension Benchmark {
    var parts: Set<Part> { [] }
}

/// A part of the project that is built only for its benchmarks.
enum Part: String {
    /// The programs that `make install` installs: notifyutil, notifyd and the shared library of notify(3).
    case notify
    /// The broker, its administration and the apps of a shared device.
    case sharedDevice = "shared-device"
}

/// In the order of the table.
let benchmarks: [any Benchmark] = [
    RoundTrip(), Throughput(), OtherNames(), Registration(), FanOut(), SameName(), WholeProcess(), Memory(), Counts(),
    NotifyCheck(), NotifyPost(), NotifyRegistration(), NotifyState(),
    SignOut(), SharedDeviceCalls(), BrokerMemory(),
]

/// The environment of the benchmarks: one bus, the programs, and the amount of work.
struct Setting {
    let bus: PrivateBus
    let programs: Programs
    let isQuick: Bool
    let progress: Progress

    /// The peer that everything is compared with.
    var baseline: Contender { programs.libdbus }

    var subject: Contender { programs.subject }

    /// `full` rounds; in a quick run a fifth of them, but at least three if `full` has as many.
    func rounds(_ full: Int) -> Int {
        isQuick ? min(full, max(3, full / 5)) : full
    }

    /// Starts a peer and waits until it is ready. Throws as `Peer` does.
    func start(_ contender: Contender, _ role: String...) throws(BenchmarkError) -> Peer {
        let peer = try Peer(contender, role, on: bus)
        try peer.waitUntilReady()
        return peer
    }

    /// Starts notifyd, and waits until it responds.
    func startNotifyd() throws(BenchmarkError) -> ChildProcess {
        let notifyd = try ChildProcess(
            Command(
                program: programs.notifyd,
                arguments: ["--address", bus.address],
                environment: ["DBUS_SESSION_BUS_ADDRESS": bus.address]
            )
        )
        // notifyd does not report when it is ready. This peer retries until it gets a response.
        let peer = try start(programs.notify, "get", "BenchStarted", "1")
        _ = try peer.result()
        return notifyd
    }
}

/// Contenders measured in turn, round after round.
struct Alternation {
    let rounds: Int
    let progress: Progress

    /// Calls `measure` with the index of each contender once in each round, in reverse order in every second round. The
    /// first round is not counted. A contender that fails is left out of later rounds, and its error is its result.
    /// Throws only `.interrupted`.
    func run(
        contenders: Int,
        measure: (Int) throws(BenchmarkError) -> Double
    ) throws(BenchmarkError) -> [Result<Samples, BenchmarkError>] {
        var values = [[Double]](repeating: [], count: contenders)
        var failures = [BenchmarkError?](repeating: nil, count: contenders)
        for round in 0...rounds {
            progress.round(round, of: rounds)
            let order = Array(0..<contenders)
            for contender in round.isMultiple(of: 2) ? order : order.reversed() where failures[contender] == nil {
                do throws(BenchmarkError) {
                    try Interruption.check()
                    let value = try measure(contender)
                    if round > 0 { values[contender].append(value) }
                } catch  where error.code == .interrupted {
                    throw error
                } catch {
                    failures[contender] = error
                }
            }
        }
        return zip(values, failures).map { values, failure in
            if let failure { return .failure(failure) }
            guard let samples = Samples(values) else {
                return .failure(BenchmarkError(.wrongCount, "there was no round to measure in"))
            }
            return .success(samples)
        }
    }
}
