import Foundation
import NotifyCenterFoundation
import NotifyCenterTestKit
import Testing

@Suite("Observers on operation queues")
struct OperationQueueTests {
    private let bus: PrivateBus
    private let center: DistributedNotificationCenter
    private let queue = OperationQueue()
    private let log = Log()

    init() throws {
        bus = try PrivateBus()
        center = DistributedNotificationCenter(bus: bus.bus)
    }

    /// Calls `block` on the queue with the object of each notification, which is a number.
    @discardableResult
    private func observe(_ block: @escaping @Sendable (String) -> Void) -> any NSObjectProtocol {
        center.addObserver(forName: .init("n"), object: nil, queue: queue) { notification in
            block(notification.object as? String ?? "-")
        }
    }

    private func post(_ numbers: ClosedRange<Int>) {
        for number in numbers { center.post(name: .init("n"), object: "\(number)") }
    }

    /// Waits until the queue has this many operations, running or waiting.
    private func operations(_ count: Int) async throws {
        try await eventually("\(count) operations are in the queue") { queue.operationCount == count }
    }

    // CF-X8
    @Test("an observer gets everything after a cancellation, and no operation is retained")
    func cancelAllOperations() async throws {
        queue.isSuspended = true
        observe { [log] in log.add($0) }
        post(1...1)
        try await operations(1)
        queue.cancelAllOperations()
        queue.isSuspended = false
        post(2...3)
        try await eventually("all are delivered") { log.all.count == 3 }
        #expect(log.all == ["1", "2", "3"])
        queue.isSuspended = true
        post(4...6)
        try await operations(3)
        let waiting = queue.operations
        queue.isSuspended = false
        try await operations(0)
        #expect(log.all == (1...6).map { "\($0)" })
        #expect(waiting.allSatisfy { $0.dependencies.isEmpty }, "no operation retains another")
    }

    // CF-X8, CF-D4
    @Test("after a block suspends its queue, no block runs until the queue is resumed", arguments: [1, 8])
    func suspensionByBlock(_ width: Int) async throws {
        queue.maxConcurrentOperationCount = width
        queue.isSuspended = true
        observe { [log, queue] in
            queue.isSuspended = true
            log.add($0)
        }
        post(1...3)
        try await operations(3)
        for number in 1...3 {
            queue.isSuspended = false
            try await operations(3 - number)
            #expect(log.all == (1...number).map { "\($0)" })
        }
    }

    // CF-X8, CF-D4
    @Test("on a concurrent queue, blocks of one observer run one by one and in order")
    func wideQueue() async throws {
        queue.maxConcurrentOperationCount = 8
        queue.name = "wide"
        observe { [log] in
            log.add("begin \($0) \(OperationQueue.current?.name ?? "-")")
            // Enough time for another block to begin.
            Thread.sleep(forTimeInterval: 0.000_2)
            log.add("end \($0)")
        }
        post(1...300)
        try await eventually("all are delivered") { log.all.count == 600 }
        #expect(log.all == (1...300).flatMap { ["begin \($0) wide", "end \($0)"] })
    }

    // CF-R7
    @Test("after a removal no pending block begins, and the running block ends normally", arguments: [1, 8])
    func removalWhileManyWait(_ width: Int) async throws {
        queue.maxConcurrentOperationCount = width
        let gate = DispatchSemaphore(value: 0)
        let token = observe { [log] in
            log.add("begin \($0)")
            gate.wait()
            log.add("end \($0)")
        }
        post(1...300)
        try await operations(300)
        try await eventually("the first block runs") { log.all == ["begin 1"] }
        center.removeObserver(token)
        for _ in 1...300 { gate.signal() }
        try await operations(0)
        #expect(log.all == ["begin 1", "end 1"])
    }
}
