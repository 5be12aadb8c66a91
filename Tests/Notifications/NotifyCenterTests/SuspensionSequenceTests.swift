@_spi(Extensions) import NotifyCenterTestKit
import Testing

@testable import NotifyCenter

/// Takes long, so only `make test-long` runs it.
@Suite("The rules of suspension hold for any sequence of steps")
struct SuspensionSequenceTests {
    // CF-S1…S13, CF-S15, CF-S16, CF-D3, CF-M2
    @Test(
        "every sequence of six steps follows the rules, with all four behaviours",
        arguments: Step.allCases
    )
    func everySequence(first: Step) async {
        let sequences = await onThread {
            var sequences = 0
            for length in 1...6 {
                Step.forEachSequence(beginning: first, length: length) { steps in
                    let (center, model) = (ModelledCenter(), NaiveCenter())
                    for behavior in SuspensionBehavior.allCases {
                        center.add(behavior, name: nil, object: nil)
                        model.add(behavior, name: nil, object: nil)
                    }
                    expectSame(center, model, steps)
                    sequences += 1
                }
            }
            return sequences
        }
        #expect(sequences == 1 + 7 + 49 + 343 + 2401 + 16_807)
    }

    // The same from a center without observers, with steps that add observers.
    @Test(
        "every sequence of five steps follows the rules, from an empty center",
        arguments: Step.allWithAdding
    )
    func everySequenceWithAdding(first: Step) async {
        let sequences = await onThread {
            var sequences = 0
            for length in 1...5 {
                Step.forEachSequence(beginning: first, length: length, of: Step.allWithAdding) { steps in
                    expectSame(ModelledCenter(), NaiveCenter(), steps)
                    sequences += 1
                }
            }
            return sequences
        }
        #expect(sequences == 1 + 12 + 144 + 1728 + 20_736)
    }

    // The same with handlers on a queue, which may run late.
    @Test("every sequence of five steps follows the rules, with handlers on a queue", arguments: Step.allWithJobs)
    func everySequenceOnAQueue(first: Step) async {
        let sequences = await onThread {
            var sequences = 0
            for length in 1...5 {
                Step.forEachSequence(beginning: first, length: length, of: Step.allWithJobs) { steps in
                    let (center, model) = (ModelledCenter(jobs: PendingJobs()), NaiveCenter(hasQueue: true))
                    for behavior in [.coalesce, .hold, .deliverImmediately] as [SuspensionBehavior] {
                        center.add(behavior, name: behavior == .deliverImmediately ? "m" : nil, object: nil)
                        model.add(behavior, name: behavior == .deliverImmediately ? "m" : nil, object: nil)
                    }
                    expectSame(center, model, steps + [.runJobs, .resume, .runJobs])
                    sequences += 1
                }
            }
            return sequences
        }
        #expect(sequences == 1 + 8 + 64 + 512 + 4096)
    }

    // CF-S8, CF-S9, CF-S14: the reading thread may flush late, after further steps.
    @Test(
        "every sequence of six steps follows the rules, whenever a flush happens",
        arguments: Step.allWithFlush
    )
    func everySequenceWithALateFlush(first: Step) async {
        let sequences = await onThread {
            var sequences = 0
            for length in 1...6 {
                Step.forEachSequence(beginning: first, length: length, of: Step.allWithFlush) { steps in
                    let (center, model) = (ModelledCenter(flushesLate: true), NaiveCenter(flushesLate: true))
                    expectSame(center, model, steps + [.resume, .flush])
                    #expect(center.pendingFlushes == 0)
                    sequences += 1
                }
            }
            return sequences
        }
        #expect(sequences == 1 + 7 + 49 + 343 + 2401 + 16_807)
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
    }
}
