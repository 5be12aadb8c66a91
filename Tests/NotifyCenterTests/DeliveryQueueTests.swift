import Testing

@testable import NotifyCenter

@Suite("What waits for a slow observer, and what gives way")
struct DeliveryQueueTests {
    private func drain(_ queue: inout DeliveryQueue<Int>) -> [Int] {
        var taken: [Int] = []
        while let element = queue.next() { taken.append(element) }
        return taken
    }

    @Test("the oldest give way under bufferingNewest, the newest under bufferingOldest, and each is counted")
    func bounds() {
        var newest = DeliveryQueue<Int>(.bufferingNewest(3))
        var oldest = DeliveryQueue<Int>(.bufferingOldest(3))
        for number in 0..<10 {
            _ = newest.offer(number)
            _ = oldest.offer(number)
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
        for number in 0..<10 { _ = queue.offer(number) }
        #expect(drain(&queue) == [9])
        #expect(queue.counts == DeliveryCounts(delivered: 1, coalesced: 9, dropped: 0))
    }

    @Test("order holds over any mix of offers and takes")
    func order() {
        var generator = SplitMix(state: 3)
        var queue = DeliveryQueue<Int>(.unbounded)
        var taken: [Int] = []
        for number in 0..<5000 {
            _ = queue.offer(number)
            while Bool.random(using: &generator), let element = queue.next() { taken.append(element) }
        }
        #expect(taken + drain(&queue) == Array(0..<5000))
    }

    // CF-R7
    @Test("nothing is delivered once the registration ended")
    func cancellation() {
        var queue = DeliveryQueue<Int>(.unbounded)
        _ = queue.offer(1)
        queue.cancel()
        let afterEnd = queue.next()
        #expect(afterEnd == nil)
        let passes = queue.passThrough()
        #expect(!passes)
        guard case .refused = queue.offer(2) else {
            Issue.record("taken after the end")
            return
        }
    }

    @Test("one drain runs at a time, and the next offer after its end begins another")
    func drains() {
        var queue = DeliveryQueue<Int>(.unbounded)
        _ = queue.offer(1)
        let begins = queue.beginDrain()
        #expect(begins)
        let beginsTwice = queue.beginDrain()
        #expect(!beginsTwice)
        let first = queue.nextOfDrain()
        #expect(first == 1)
        let second = queue.nextOfDrain()
        #expect(second == nil)
        let beginsAgain = queue.beginDrain()
        #expect(beginsAgain)
    }
}
