@_spi(Extensions) import NotifyCenterTestKit
import Testing

@testable import NotifyCenter

/// Takes long, so only `make test-long` runs it.
@Suite("The rules of suspension hold for any sequence of steps")
struct SuspensionSequenceTests {
    // CF-S1…S13, CF-S15, CF-S16, CF-D3, CF-M2
    @Test("every sequence of six steps follows the rules, with all four behaviours", arguments: Step.allCases)
    func everySequence(first: Step) async {
        await expectRules(first, of: Step.allCases, length: 6) {
            (ModelledCenter(), NaiveCenter(), SuspensionBehavior.allCases.map { ($0, nil) })
        }
    }

    // The same from a center without observers, with steps that add observers.
    @Test("every sequence of five steps follows the rules, from an empty center", arguments: Step.allWithAdding)
    func everySequenceWithAdding(first: Step) async {
        await expectRules(first, of: Step.allWithAdding, length: 5) { (ModelledCenter(), NaiveCenter(), []) }
    }

    // The same with handlers on a queue, which may run late.
    @Test("every sequence of five steps follows the rules, with handlers on a queue", arguments: Step.allWithJobs)
    func everySequenceOnAQueue(first: Step) async {
        await expectRules(first, of: Step.allWithJobs, length: 5, then: [.runJobs, .resume, .runJobs]) {
            (
                ModelledCenter(jobs: PendingJobs()), NaiveCenter(hasQueue: true),
                [(.coalesce, nil), (.hold, nil), (.deliverImmediately, "m")]
            )
        }
    }

    // CF-S8, CF-S9, CF-S14: the reading thread may flush late, after further steps.
    @Test("every sequence of six steps follows the rules, whenever a flush happens", arguments: Step.allWithFlush)
    func everySequenceWithALateFlush(first: Step) async {
        await expectRules(first, of: Step.allWithFlush, length: 6, then: [.resume, .flush]) {
            (ModelledCenter(flushesLate: true), NaiveCenter(flushesLate: true), [])
        }
    }

    /// The center, its model, and the observers that both have at first.
    private typealias Centers = (ModelledCenter, NaiveCenter, [(SuspensionBehavior, NotificationName?)])

    /// Expects that center and model deliver the same after each step of each sequence that begins with `first`.
    private func expectRules(
        _ first: Step,
        of steps: [Step],
        length longest: Int,
        then last: [Step] = [],
        _ make: @escaping @Sendable () -> Centers
    ) async {
        let sequences = await onThread {
            var sequences = 0
            for length in 1...longest {
                Step.forEachSequence(beginning: first, length: length, of: steps) { sequence in
                    let (center, model, observers) = make()
                    for (behavior, name) in observers {
                        center.add(behavior, name: name, object: nil)
                        model.add(behavior, name: name, object: nil)
                    }
                    expectSame(center, model, sequence + last)
                    sequences += 1
                }
            }
            return sequences
        }
        #expect(sequences == (0..<longest).reduce(0) { sum, _ in sum * steps.count + 1 })
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
