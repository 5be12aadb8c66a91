/// One question that the table answers, in one row or a few.
protocol Benchmark: Sendable {
    /// The word that selects it on the command line.
    var name: String { get }
    /// What it measures, for `--list`.
    var summary: String { get }
    /// The parts of the project that it measures beside the peers.
    var parts: Set<Part> { get }

    /// Measures. A contender that fails becomes a row that says why. Throws `.interrupted`, and what leaves nothing to report.
    func rows(in setting: Setting) throws(BenchmarkError) -> [Row]
}

extension Benchmark {
    var parts: Set<Part> { [] }
}

/// A part of the project that is built only where a benchmark of it was chosen.
enum Part: String {
    /// What `make install` installs: notifyutil, notifyd and the shared library of notify(3).
    case notify
    /// The broker, its administration and the apps of a shared device.
    case sharedDevice = "shared-device"
}

/// All of them, in the order of the table.
let benchmarks: [any Benchmark] = [
    RoundTrip(), Throughput(), OtherNames(), Registration(), FanOut(), SameName(), WholeProcess(), Memory(), Counts(),
    NotifyCheck(), NotifyPost(), NotifyRegistration(), NotifyState(),
    SignOut(), SharedDeviceCalls(), BrokerMemory(),
]

/// What the benchmarks run with: one bus, the programs, and how much to do.
struct Setting {
    let bus: PrivateBus
    let programs: Programs
    let isQuick: Bool
    let progress: Progress

    /// The peer that everything is compared with.
    var baseline: Contender { programs.libdbus }

    /// The peer under test.
    var subject: Contender { programs.subject }

    /// `full` rounds; in a quick run a fifth of them, but at least three if there are so many.
    func rounds(_ full: Int) -> Int {
        isQuick ? min(full, max(3, full / 5)) : full
    }

    /// Starts a peer and waits until it is ready. Throws as `Peer` does.
    func start(_ contender: Contender, _ role: String...) throws(BenchmarkError) -> Peer {
        let peer = try Peer(contender, role, on: bus)
        try peer.waitUntilReady()
        return peer
    }

    /// Starts notifyd. On return it answers.
    func startNotifyd() throws(BenchmarkError) -> ChildProcess {
        let notifyd = try ChildProcess(
            Command(
                program: programs.notifyd,
                arguments: ["--address", bus.address],
                environment: ["DBUS_SESSION_BUS_ADDRESS": bus.address]
            )
        )
        // notifyd does not say when it is ready. This peer asks until it has an answer.
        let peer = try start(programs.notify, "get", "BenchStarted", "1")
        _ = try peer.result()
        return notifyd
    }
}

/// Contenders measured in turn, round after round.
struct Alternation {
    let rounds: Int
    let progress: Progress

    /// Calls `measure` with the index of each contender once a round, every second round in reverse order, after one round that is not
    /// counted. A contender that fails is left out from then on, and its error is its result. Throws `.interrupted` only.
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
