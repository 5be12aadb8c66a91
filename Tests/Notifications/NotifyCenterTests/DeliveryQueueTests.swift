import Testing

@testable import NotifyCenter

@Suite("The queue of a slow observer")
struct DeliveryQueueTests {
    private func drain(_ queue: inout DeliveryQueue<Int>) -> [Int] {
        var taken: [Int] = []
        while let element = queue.next(below: .max) { taken.append(element) }
        return taken
    }

    private func source(_ text: String) -> NotificationSource {
        NotificationSource(name: "n", object: NotificationObject(text: text))
    }

    // CF-W2
    @Test("each buffering keeps the right elements and counts the dropped ones")
    func bounds() {
        let cases: [(Buffering, kept: [Int], coalesced: UInt64, dropped: UInt64)] = [
            (.bufferingNewest(3), [7, 8, 9], 0, 7), (.bufferingOldest(3), [0, 1, 2], 0, 7), (.coalescing, [9], 9, 0),
        ]
        for (buffering, kept, coalesced, dropped) in cases {
            var queue = DeliveryQueue<Int>(buffering)
            for number in 0..<10 { queue.offer(number, number: UInt64(number), bytes: 1) }
            #expect(drain(&queue) == kept)
            let counts = DeliveryCounts(delivered: UInt64(kept.count), coalesced: coalesced, dropped: dropped)
            #expect(queue.counts == counts)
        }
    }

    // CF-R7
    @Test("elements keep their order, wait for the limit, and end with the registration")
    func order() {
        var generator = SplitMix(state: 3)
        var queue = DeliveryQueue<Int>(.unbounded)
        var taken: [Int] = []
        for number in 0..<5000 {
            queue.offer(number, number: UInt64(number), bytes: 1)
            while Bool.random(using: &generator), let element = queue.next(below: .max) { taken.append(element) }
        }
        #expect(taken + drain(&queue) == Array(0..<5000))
        var limited = DeliveryQueue<Int>(.unbounded)
        for number in 0..<4 { limited.offer(number, number: UInt64(number), bytes: 1) }
        let (first, second, third) = (limited.next(below: 2), limited.next(below: 2), limited.next(below: 2))
        #expect(first == 0 && second == 1 && third == nil)
        let passesOthers = limited.passThrough(4, below: .max)
        #expect(!passesOthers && drain(&limited) == [2, 3])
        let passes = [limited.passThrough(4, below: 4), limited.passThrough(4, below: 5)]
        #expect(passes == [false, true])
        var ended = DeliveryQueue<Int>(.unbounded)
        ended.offer(1, number: 0, bytes: 1)
        ended.cancel()
        let afterEnd = ended.next(below: .max)
        let passesAfterEnd = ended.passThrough(1, below: .max)
        ended.offer(2, number: 1, bytes: 1)
        #expect(afterEnd == nil && !passesAfterEnd && ended.count == 0)
    }

    @Test("one drain runs at a time, and there are never more jobs than elements")
    func drains() {
        var queue = DeliveryQueue<Int>(.unbounded)
        func ask() -> Bool { queue.ask(limit: 1) }
        #expect(!ask(), "nothing waits")
        queue.offer(1, number: 0, bytes: 1)
        #expect(ask())
        queue.offer(2, number: 1, bytes: 1)
        #expect(!ask())
        #expect(drain(&queue) == [1, 2])
        queue.endJob()
        queue.offer(3, number: 2, bytes: 1)
        #expect(ask())
        var bounded = DeliveryQueue<Int>(.bufferingNewest(3))
        func askMore() -> Bool { bounded.ask(limit: .max) }
        var asked = 0
        for number in 0..<10 {
            bounded.offer(number, number: UInt64(number), bytes: 1)
            if askMore() { asked += 1 }
        }
        #expect(asked == 3)
        #expect(bounded.countWithoutJob == 0)
        // A job that finds the gate closed ends, and its element needs another job.
        bounded.endJob()
        let next = bounded.next(below: 0)
        #expect(next == nil)
        #expect(bounded.countWithoutJob == 1)
        #expect(askMore())
        #expect(!askMore())
    }

    // architecture D4
    @Test("waiting bytes are limited, and a replacement counts with its own size")
    func bytes() {
        let mebibyte = 1 << 20
        for isSuspended in [false, true] {
            func filled(_ buffering: Buffering) -> DeliveryQueue<Int> {
                var queue = DeliveryQueue<Int>(buffering)
                for number in 0..<20 {
                    if isSuspended {
                        queue.coalesce(number, number: UInt64(number), bytes: mebibyte, source: source("\(number)"))
                    } else {
                        queue.offer(number, number: UInt64(number), bytes: mebibyte)
                    }
                }
                _ = queue.release()
                return queue
            }
            var (newest, oldest, unbounded) = (filled(.standard), filled(.bufferingOldest(4096)), filled(.unbounded))
            let drained = [drain(&newest), drain(&oldest), drain(&unbounded)]
            #expect(drained == [Array(4..<20), Array(0..<16), Array(0..<20)])
            #expect([newest.counts.dropped, oldest.counts.dropped] == [4, 4])
            // Taken elements free their room.
            newest.offer(20, number: 20, bytes: 16 * mebibyte)
            #expect(drain(&newest) == [20])
            newest.offer(21, number: 21, bytes: 16 * mebibyte)
            newest.offer(22, number: 22, bytes: 1)
            #expect(drain(&newest) == [22])
        }
        let (one, other) = (source("one"), source("other"))
        var (newest, oldest) = (DeliveryQueue<Int>(.standard), DeliveryQueue<Int>(.bufferingOldest(4096)))
        func fill(_ queue: inout DeliveryQueue<Int>) -> [Int] {
            queue.coalesce(0, number: 0, bytes: 8 * mebibyte, source: one)
            queue.coalesce(1, number: 1, bytes: 1, source: other)
            for number in 2..<10 { queue.coalesce(number, number: UInt64(number), bytes: 12 * mebibyte, source: other) }
            _ = queue.release()
            return drain(&queue)
        }
        #expect(fill(&newest) == [9], "the larger one replaces the oldest")
        #expect(newest.counts == DeliveryCounts(delivered: 1, coalesced: 8, dropped: 1))
        #expect(fill(&oldest) == [0, 1], "the larger ones have no room")
        #expect(oldest.counts == DeliveryCounts(delivered: 2, dropped: 8))
    }

    // CF-S3, CF-S4, CF-S5
    @Test("a suspension's backlog has the same limit, and losses are counted by cause")
    func suspension() {
        var newest = DeliveryQueue<Int>(.bufferingNewest(2))
        var oldest = DeliveryQueue<Int>(.bufferingOldest(2))
        for (number, object) in ["a", "b", "a", "c", "b"].enumerated() {
            newest.coalesce(number, number: UInt64(number), bytes: 1, source: source(object))
            oldest.coalesce(number, number: UInt64(number), bytes: 1, source: source(object))
        }
        #expect(
            [newest.counts, oldest.counts]
                == [DeliveryCounts(coalesced: 1, dropped: 2), DeliveryCounts(coalesced: 2, dropped: 1)]
        )
        #expect(newest.count == 2 && oldest.count == 2)
        let released: [[UInt64]] = [newest.release(), oldest.release()]
        #expect(released == [[3, 4], [2, 4]])
        #expect([drain(&newest), drain(&oldest)] == [[3, 4], [2, 4]])
        newest.suppress()
        #expect(newest.counts.suppressed == 1)
    }
}
