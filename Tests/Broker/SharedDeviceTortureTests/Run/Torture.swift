import Basics
import DBus
import Synchronization

struct Torture: Sendable {
    var schedules = 20
    /// The seed of the first schedule. The others have the following seeds.
    var seed: UInt64 = 1
    var repeats = 1
    var jobs = 4
    var mutant: String?

    var enoughFailures = 3
    /// Whether to remove steps that a failure does not need.
    var shrinks = false
    /// The number of runs of a schedule without one of its steps before that step counts as needed.
    var attempts = 5
    var progress: @Sendable (String) -> Void = { _ in }

    struct Failure: Sendable, CustomStringConvertible {
        let seed: UInt64
        let reason: String
        /// Whether a property was violated, as opposed to a failure of the torture itself.
        let isViolation: Bool
        let description: String
    }

    struct Result: Sendable {
        var done = 0
        var failures: [Failure] = []
        var counts: [String: Int] = [:]
    }

    final class Board: Sendable {
        let next = Locked(0)
        let result = Locked(Result())
    }

    /// The number of schedules per device. Reusing a device detects effects of one schedule on the next.
    private static let schedulesPerDevice = 10

    func run() async -> Result {
        let board = Board()
        await withTaskGroup { group in
            for _ in 0..<jobs { group.addTask { await work(board) } }
        }
        return board.result.withLock { $0 }
    }

    private func work(_ board: Board) async {
        var device: TortureDevice?
        var uses = 0
        while let index = take(board) {
            let schedule = Schedule(seed: seed &+ UInt64(index / repeats))
            do {
                if device == nil {
                    device = try await TortureDevice(mutant: mutant)
                    uses = 0
                }
                guard let current = device else { continue }
                uses += 1
                var failure = await carryOut(schedule, on: current, board)
                if let found = failure {
                    progress("seed \(found.seed) failed: \(found.reason)")
                    if shrinks { failure = await shrink(schedule, found) }
                }
                if let failure { board.result.withLock { $0.failures.append(failure) } }
                if failure != nil || uses == Self.schedulesPerDevice { device = nil }
            } catch {
                let failure = Failure(
                    seed: schedule.seed,
                    reason: "no device: \(error)",
                    isViolation: false,
                    description: "there is no device to torture: \(error)"
                )
                board.result.withLock { $0.failures.append(failure) }
            }
        }
    }

    private func take(_ board: Board) -> Int? {
        guard board.result.withLock({ $0.failures.count }) < enoughFailures else { return nil }
        return board.next.withLock { next in
            guard next < schedules * repeats else { return nil }
            defer { next += 1 }
            return next
        }
    }

    func carryOut(_ schedule: Schedule, on device: TortureDevice, _ board: Board) async -> Failure? {
        var place = "the beginning"
        do {
            var runner = try Runner(schedule, on: device)
            defer {
                place = runner.place
                let counts = runner.counts
                board.result.withLock { $0.counts.merge(counts, uniquingKeysWith: +) }
            }
            try await runner.run()
            let (done, failures) = board.result.withLock { result in
                result.done += 1
                return (result.done, result.failures.count)
            }
            if done.isMultiple(of: 50) { progress("\(done) schedules, \(failures) failures") }
            return nil
        } catch {
            return Failure(
                seed: schedule.seed,
                reason: "\(error)",
                isViolation: error is Monitor.Violation,
                description: report(of: schedule, "\(error)", at: place, device)
            )
        }
    }

    private func report(of schedule: Schedule, _ reason: String, at place: String, _ device: TortureDevice) -> String {
        let journals = device.apps.flatMap { app in
            ["journal of \(app.participant.name):"] + app.journal.suffix(60).map { "  " + $0 }
        }
        let adapter = ["the adapter's log:"] + device.adapter.log.suffix(40).map { "  " + $0 }
        let broker = ["the broker's log:"] + device.brokerLog.suffix(40).map { "  " + $0 }
        let lines = ["\(reason)", "at \(place)", "\(schedule)"] + journals + adapter + broker
        return lines.joined(separator: "\n") + "\nagain: make torture SEED=\(schedule.seed) SCHEDULES=1"
    }
}

extension Torture {
    /// Removes steps that the failure does not need.
    ///
    /// - Returns: the failure of the shortest schedule found, or `failure` if each step is needed.
    func shrink(_ schedule: Schedule, _ failure: Failure) async -> Failure {
        var (shortest, latest) = (schedule, failure)
        var index = schedule.steps.count - 1
        // From the end, because most steps after the failure are not needed.
        while index >= 0 {
            let candidate = shortest.without(index)
            if candidate.isSensible, let found = await firstFailure(of: candidate) {
                (shortest, latest) = (candidate, found)
                progress("\(shortest.steps.count) steps are enough: \(found.reason)")
            }
            index -= 1
        }
        return latest
    }

    private func firstFailure(of schedule: Schedule) async -> Failure? {
        for _ in 0..<attempts {
            guard let device = try? await TortureDevice(mutant: mutant) else { return nil }
            if let failure = await carryOut(schedule, on: device, Board()), failure.isViolation { return failure }
        }
        return nil
    }
}
