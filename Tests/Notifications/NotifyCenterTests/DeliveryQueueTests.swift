import Testing

@testable import NotifyCenter

@Suite("What waits for a slow observer, and what gives way")
struct DeliveryQueueTests {
    private func drain(_ queue: inout DeliveryQueue<Int>) -> [Int] {
        var taken: [Int] = []
        while let element = queue.next(below: .max) { taken.append(element) }
        return taken
    }

    @Test("the oldest give way under bufferingNewest, the newest under bufferingOldest, and each is counted")
    func bounds() {
        var newest = DeliveryQueue<Int>(.bufferingNewest(3))
        var oldest = DeliveryQueue<Int>(.bufferingOldest(3))
        for number in 0..<10 {
            _ = newest.offer(number, number: UInt64(number))
            _ = oldest.offer(number, number: UInt64(number))
        }
        #expect(drain(&newest) == [7, 8, 9])
        #expect(newest.counts == DeliveryCounts(delivered: 3, coalesced: 0, dropped: 7))
        #expect(drain(&oldest) == [0, 1, 2])
        #expect(oldest.counts == DeliveryCounts(delivered: 3, coalesced: 0, dropped: 7))
    }

    // CF-W2
    @Test("a coalescing queue holds one, the last")
    func coalescing() {
        var queue = DeliveryQueue<Int>(.coalescing)
        for number in 0..<10 { _ = queue.offer(number, number: UInt64(number)) }
        #expect(drain(&queue) == [9])
        #expect(queue.counts == DeliveryCounts(delivered: 1, coalesced: 9, dropped: 0))
    }

    @Test("order holds over any mix of offers and takes")
    func order() {
        var generator = SplitMix(state: 3)
        var queue = DeliveryQueue<Int>(.unbounded)
        var taken: [Int] = []
        for number in 0..<5000 {
            _ = queue.offer(number, number: UInt64(number))
            while Bool.random(using: &generator), let element = queue.next(below: .max) { taken.append(element) }
        }
        #expect(taken + drain(&queue) == Array(0..<5000))
    }

    // CF-R7
    @Test("nothing is delivered once the registration ended")
    func cancellation() {
        var queue = DeliveryQueue<Int>(.unbounded)
        _ = queue.offer(1, number: 0)
        queue.cancel()
        let afterEnd = queue.next(below: .max)
        #expect(afterEnd == nil)
        let passes = queue.passThrough(1, below: .max)
        #expect(!passes)
        guard case .refused = queue.offer(2, number: 1) else {
            Issue.record("taken after the end")
            return
        }
    }

    @Test("one drain runs at a time, and the next offer after its end begins another")
    func drains() {
        var queue = DeliveryQueue<Int>(.unbounded)
        _ = queue.offer(1, number: 0)
        let begins = queue.beginDrain()
        #expect(begins)
        let beginsTwice = queue.beginDrain()
        #expect(!beginsTwice)
        let first = queue.nextOfDrain(below: .max)
        #expect(first == 1)
        let second = queue.nextOfDrain(below: .max)
        #expect(second == nil)
        let beginsAgain = queue.beginDrain()
        #expect(beginsAgain)
    }

    // CF-S3, CF-S4, CF-S5
    @Test("what a suspension keeps is under the same bound, and each loss is counted for what it is")
    func suspension() {
        func source(_ object: String) -> NotificationSource {
            NotificationSource(name: "n", object: NotificationObject(text: object))
        }
        var newest = DeliveryQueue<Int>(.bufferingNewest(2))
        var oldest = DeliveryQueue<Int>(.bufferingOldest(2))
        for (number, object) in ["a", "b", "a", "c", "b"].enumerated() {
            newest.coalesce(number, number: UInt64(number), source: source(object))
            oldest.coalesce(number, number: UInt64(number), source: source(object))
        }
        #expect(newest.counts == DeliveryCounts(coalesced: 1, dropped: 2))
        #expect(oldest.counts == DeliveryCounts(coalesced: 2, dropped: 1))
        #expect(newest.count == 2 && oldest.count == 2)
        #expect(newest.release() == [3, 4])
        #expect(oldest.release() == [2, 4])
        #expect(drain(&newest) == [3, 4])
        #expect(drain(&oldest) == [2, 4])
        newest.suppress()
        #expect(newest.counts.suppressed == 1)
    }

    @Test("only what is numbered below the limit comes out, and what waits comes before what passes through")
    func limit() {
        var queue = DeliveryQueue<Int>(.unbounded)
        for number in 0..<4 { _ = queue.offer(number, number: UInt64(number)) }
        let (first, second, third) = (queue.next(below: 2), queue.next(below: 2), queue.next(below: 2))
        #expect(first == 0 && second == 1 && third == nil)
        let passesOthers = queue.passThrough(4, below: .max)
        #expect(!passesOthers)
        #expect(drain(&queue) == [2, 3])
        let passesLimit = queue.passThrough(4, below: 4)
        #expect(!passesLimit)
        let passes = queue.passThrough(4, below: 5)
        #expect(passes)
    }
}
