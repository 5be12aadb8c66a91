@_spi(Extensions) import NotifyCenterTestKit
import Testing

@testable import NotifyCenter

/// Takes long, so only `make test-long` runs it.
@Suite("The rules of suspension hold for any sequence of steps")
struct SuspensionSequenceTests {
    /// The center, its model, and the observers that both have at first.
    fileprivate typealias Centers = (ModelledCenter, NaiveCenter, [(SuspensionBehavior, NotificationName?)])

    enum Kind: CaseIterable {
        case allBehaviours, emptyAtFirst, handlersOnAQueue, lateFlushes

        /// The reading thread may flush late, and a queue may run handlers late, after further steps.
        var steps: [Step] {
            switch self {
            case .allBehaviours: Step.allCases
            case .emptyAtFirst: Step.allWithAdding
            case .handlersOnAQueue: Step.allWithJobs
            case .lateFlushes: Step.allWithFlush
            }
        }

        /// The steps after each sequence.
        var last: [Step] {
            switch self {
            case .allBehaviours, .emptyAtFirst: []
            case .handlersOnAQueue: [.runJobs, .resume, .runJobs]
            case .lateFlushes: [.resume, .flush]
            }
        }

        var length: Int { [.allBehaviours, .lateFlushes].contains(self) ? 6 : 5 }

        fileprivate func make() -> Centers {
            switch self {
            case .allBehaviours:
                (ModelledCenter(), NaiveCenter(), SuspensionBehavior.allCases.map { ($0, nil) })
            case .emptyAtFirst: (ModelledCenter(), NaiveCenter(), [])
            case .handlersOnAQueue:
                (
                    ModelledCenter(jobs: PendingJobs()), NaiveCenter(hasQueue: true),
                    [(.coalesce, nil), (.hold, nil), (.deliverImmediately, "m")]
                )
            case .lateFlushes: (ModelledCenter(flushesLate: true), NaiveCenter(flushesLate: true), [])
            }
        }
    }

    private static let cases = Kind.allCases.flatMap { kind in kind.steps.map { (kind, $0) } }

    // CF-S1…S16, CF-D3, CF-M2
    @Test("every sequence of five or six steps follows the rules", arguments: cases)
    func everySequence(_ kind: Kind, first: Step) async {
        let sequences = await onThread {
            var sequences = 0
            for length in 1...kind.length {
                Step.forEachSequence(beginning: first, length: length, of: kind.steps) { sequence in
                    let (center, model, observers) = kind.make()
                    for (behavior, name) in observers {
                        center.add(behavior, name: name, object: nil)
                        model.add(behavior, name: name, object: nil)
                    }
                    expectSame(center, model, sequence + kind.last)
                    sequences += 1
                }
            }
            return sequences
        }
        #expect(sequences == (0..<kind.length).reduce(0) { sum, _ in sum * kind.steps.count + 1 })
    }

    private func expectSame(_ center: ModelledCenter, _ model: NaiveCenter, _ steps: [Step]) {
        for (index, step) in steps.enumerated() {
            center.perform(step)
            model.perform(step)
            let (actual, expected) = (center.takeDeliveries(), model.takeDeliveries())
            // Outside the macro, because there are a million comparisons.
            if actual != expected {
                Issue.record("\(steps[...index]): \(actual), and not \(expected)")
                return
            }
        }
        if center.pendingFlushes != 0 { Issue.record("\(steps): a flush is pending") }
    }
}
