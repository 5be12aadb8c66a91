import Basics
import DBus
import Dispatch
import Foundation
@_spi(Extensions) import NotifyCenterTestKit
import Synchronization
import Testing

@testable import NotifyCenter

@Suite("Flushes on busy queues and between suspensions")
struct FlushTests {
    // CF-S11, CF-D3
    @Test("observers on a busy serial queue keep the order of arrival in a flush")
    func orderOnABusyQueue() {
        let center = ModelledCenter(jobs: PendingJobs())
        center.add(.hold, name: "x", object: nil)
        center.add(.hold, name: "y", object: nil)
        center.post("x", "", immediately: false)
        center.post("y", "", immediately: false)
        center.suspend()
        center.post("y", "", immediately: false)
        center.post("x", "", immediately: false)
        center.resume()
        center.runJobs()
        #expect(center.takeDeliveries() == ["0:0", "1:1", "1:2", "0:3"])
    }

    // architecture D4
    @Test("immediate posts to a suspended process with a blocked queue use bounded memory")
    func boundedJobs() {
        let jobs = PendingJobs()
        let center = ModelledCenter(jobs: jobs)
        center.add(.coalesce, name: nil, object: nil)
        center.suspend()
        for _ in 0..<5_000 { center.post("n", "", immediately: true) }
        for _ in 0..<100 {
            center.resume()
            center.suspend()
        }
        #expect(center.router.statistics.waiting == 4096)
        #expect(jobs.count == 4096)
        center.resume()
        center.runJobs()
        #expect(center.takeDeliveries().count == 4096)
        #expect(center.router.statistics.deliveries.dropped == 5_000 - 4096)
    }

    // CF-S4, CF-S8
    @Test("a resumption at any moment keeps the order of notifications")
    func resumptionAtAnyMoment() async {
        let (router, log) = (NotificationRouter(), Log())
        let observer = Registration(.immediate, .unbounded, .coalesce, gate: router.gate) { notification in
            log.add("\(notification.userInfo?["post"]?.intValue ?? -1)")
        }
        _ = router.add(observer, name: nil, object: nil)
        let isDone = Locked(false)
        let toggling = DispatchQueue(label: "toggles")
        toggling.async {
            while !isDone.withLock({ $0 }) {
                router.suspend()
                for _ in 0..<Int.random(in: 0..<40) { _ = router.isSuspended }
                _ = router.resume()
            }
        }
        await onThread {
            // The flush of a resumption happens here with the next arrival.
            for number in 0..<50_000 { router.receive(.testing("n", nil, userInfo: ["post": .integer(Int64(number))])) }
            isDone.withLock { $0 = true }
        }
        await onThread { toggling.sync {} }
        router.flush()
        let numbers = log.take().compactMap { Int($0) }
        #expect(numbers == numbers.sorted())
        #expect(numbers.last == 49_999)
        observer.cancel()
    }

    // CF-S8, CF-S9
    @Test("a post waits for the end of its suspension, even if the bus is lost")
    func suspensions() async throws {
        let bus = try PrivateBus()
        let center = DistributedNotifyCenter(bus: bus.bus)
        // A suspension before the first observer has no effect on a later one.
        center.isSuspended = true
        center.isSuspended = false
        let observation = try await center.observe("n", delivery: .immediate, suspensionBehavior: .hold) { _ in }
        for (count, isLost) in [(1, false), (2, true)] as [(UInt64, Bool)] {
            center.isSuspended = true
            try center.post("n")
            try await eventually("it waits") { center.statistics.waiting == 1 }
            if isLost { bus.stop() }
            center.isSuspended = false
            try await eventually("it comes") { observation.counts.delivered == count }
        }
    }
}
