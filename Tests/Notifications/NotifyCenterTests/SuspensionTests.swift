import Basics
import DBus
import NotifyCenterTestKit
import Synchronization
import Testing

@testable import NotifyCenter

@Suite("Suspension decides between delivery, waiting and loss")
struct SuspensionTests {
    // CF-S3…S7, CF-S15
    @Test("each behaviour does what the table says", arguments: SuspensionBehavior.allCases)
    func table(behavior: SuspensionBehavior) {
        let center = ModelledCenter()
        center.add(behavior, name: nil, object: nil)
        center.suspend()
        let posts: [(NotificationName, String)] = [("n", "A"), ("n", "A"), ("n", "B"), ("m", "A")]
        for (name, object) in posts { center.post(name, object, immediately: false) }
        let before = center.takeDeliveries()
        center.resume()
        let after = center.takeDeliveries()
        let all = ["0:0", "0:1", "0:2", "0:3"]
        switch behavior {
        case .drop: #expect(before.isEmpty && after.isEmpty)
        case .coalesce: #expect(before.isEmpty && after == ["0:1", "0:2", "0:3"])
        case .hold: #expect(before.isEmpty && after == all)
        case .deliverImmediately: #expect(before == all && after.isEmpty)
        }
    }

    // CF-P5, CF-S7, CF-S15
    @Test(
        "an immediate post is delivered with every behaviour",
        arguments: SuspensionBehavior.allCases
    )
    func immediatePosts(behavior: SuspensionBehavior) {
        let center = ModelledCenter()
        center.add(behavior, name: nil, object: nil)
        center.suspend()
        for _ in 0..<4 { center.post("n", "A", immediately: true) }
        #expect(center.takeDeliveries() == ["0:0", "0:1", "0:2", "0:3"])
        #expect(center.isSuspended)
    }

    // CF-S16
    @Test(
        "an immediate observer's notification first delivers the backlog of all observers"
    )
    func mixed() {
        let center = ModelledCenter()
        center.add(.hold, name: "n", object: nil)
        center.add(.deliverImmediately, name: "m", object: nil)
        center.suspend()
        center.post("n", "A", immediately: false)
        #expect(center.takeDeliveries().isEmpty)
        center.post("m", "A", immediately: false)
        #expect(center.takeDeliveries() == ["0:0", "1:1"])
        center.post("n", "A", immediately: false)
        #expect(center.takeDeliveries().isEmpty)
    }

    // CF-S9, architecture D4
    @Test("at most one flush is pending for a blocked thread, and it delivers all")
    func oneFlushAtATime() {
        let center = ModelledCenter(flushesLate: true)
        center.add(.hold, name: nil, object: nil)
        for _ in 0..<100 {
            center.suspend()
            center.post("n", "A", immediately: false)
            center.resume()
        }
        #expect(center.pendingFlushes == 1)
        center.flush()
        #expect(center.takeDeliveries().count == 100)
    }

    // CF-S6, CF-S14: an immediate post checks only registrations that kept something since the last one. After a new
    // suspension it checks all.
    @Test(
        "a job that missed its suspension is delivered with the next immediate post"
    )
    func jobThatCameTooLate() {
        let center = ModelledCenter(jobs: PendingJobs(), flushesLate: true)
        center.add(.hold, name: "n", object: nil)
        center.suspend()
        center.post("n", "A", immediately: false)
        center.post("n", "A", immediately: true)
        center.resume()
        center.suspend()
        center.runJobs()
        #expect(center.takeDeliveries().isEmpty)
        center.post("n", "A", immediately: true)
        center.runJobs()
        #expect(center.takeDeliveries() == ["0:0", "0:1", "0:2"])
    }

    // CF-S14, CF-S8
    @Test("a suspension during a flush keeps the rest waiting, in order")
    func suspendingInAFlush() {
        let router = NotificationRouter()
        let log = Locked<[String]>([])
        let observer = Registration(.immediate, .standard, .hold, gate: router.gate) { notification in
            log.withLock { $0.append(notification.object?.text ?? "") }
            if notification.object?.text == "1" { router.suspend() }
        }
        _ = router.add(observer, name: nil, object: nil)
        router.suspend()
        for number in 0..<4 { router.receive(.testing("n", "\(number)")) }
        _ = router.resume()
        router.flush()
        #expect(log.withLock { $0 } == ["0", "1"])
        router.receive(.testing("n", "4"))
        #expect(log.withLock { $0 } == ["0", "1"])
        _ = router.resume()
        router.receive(.testing("n", "5"))
        #expect(log.withLock { $0 } == ["0", "1", "2", "3", "4", "5"], "what waited comes before what arrives")
        #expect(observer.counts == DeliveryCounts(delivered: 6))
        observer.cancel()
    }

    // CF-S12, CF-R7
    @Test("removing an observer drops its backlog, also during a flush")
    func removal() {
        let router = NotificationRouter()
        let log = Locked<[String]>([])
        let second = Registration(.immediate, .standard, .hold, gate: router.gate) { _ in
            log.withLock { $0.append("second") }
        }
        let first = Registration(.immediate, .standard, .hold, gate: router.gate) { _ in
            log.withLock { $0.append("first") }
            second.cancel()
        }
        _ = router.add(first, name: nil, object: nil)
        _ = router.add(second, name: nil, object: nil)
        router.suspend()
        for _ in 0..<2 { router.receive(.testing("n", nil)) }
        _ = router.resume()
        router.flush()
        #expect(log.withLock { $0 } == ["first", "first"])
    }

    // CF-S5
    @Test("hold keeps as many notifications as the buffering allows and counts the rest")
    func boundOfHold() {
        let router = NotificationRouter()
        let log = Locked<[String]>([])
        let policies: [(String, Buffering)] = [("newest", .bufferingNewest(3)), ("oldest", .bufferingOldest(3))]
        let observers = policies.map { label, buffering in
            Registration(.immediate, buffering, .hold, gate: router.gate) { notification in
                log.withLock { $0.append("\(label) \(notification.object?.text ?? "")") }
            }
        }
        for observer in observers { _ = router.add(observer, name: nil, object: nil) }
        router.suspend()
        for number in 0..<10 { router.receive(.testing("n", "\(number)")) }
        #expect(router.statistics.waiting == 6)
        #expect(router.statistics.deliveries.dropped == 14)
        _ = router.resume()
        router.flush()
        #expect(
            log.withLock { $0 } == ["oldest 0", "oldest 1", "oldest 2", "newest 7", "newest 8", "newest 9"]
        )
    }
}
