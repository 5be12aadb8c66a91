import Testing

@testable import NotifyCenter

@Suite("Suspension decides between delivery, waiting and loss")
struct SuspensionTests {
    // CF-S3…S7, CF-S15, CF-P5
    @Test("each behaviour does what the table says, and takes immediate posts")
    func table() {
        let all = ["0:0", "0:1", "0:2", "0:3"]
        let rows: [(behavior: SuspensionBehavior, atOnce: [String], atTheEnd: [String])] = [
            (.drop, [], []), (.coalesce, [], ["0:1", "0:2", "0:3"]), (.hold, [], all), (.deliverImmediately, all, []),
        ]
        let posts: [(NotificationName, String)] = [("n", "A"), ("n", "A"), ("n", "B"), ("m", "A")]
        for (behavior, atOnce, atTheEnd) in rows {
            for isImmediate in [false, true] {
                let center = ModelledCenter()
                center.add(behavior, name: nil, object: nil)
                center.suspend()
                for (name, object) in posts { center.post(name, object, immediately: isImmediate) }
                #expect(center.isSuspended)
                let before = center.takeDeliveries()
                center.resume()
                let expected = isImmediate ? [all, []] : [atOnce, atTheEnd]
                #expect([before, center.takeDeliveries()] == expected, "\(behavior), immediate: \(isImmediate)")
            }
        }
    }

    // CF-S16
    @Test("an immediate observer's notification first delivers the backlog of all observers")
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
    @Test("a job that missed its suspension is delivered with the next immediate post")
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

    // CF-S14, CF-S8, CF-S12, CF-R7
    @Test("a suspension or removal during a flush keeps or drops the rest of the backlog")
    func suspendingInAFlush() {
        let (router, log) = (NotificationRouter(), Log())
        let observer = Registration(.immediate, .standard, .hold, gate: router.gate) { notification in
            log.add(notification.object?.text ?? "")
            if notification.object?.text == "1" { router.suspend() }
        }
        _ = router.add(observer, name: nil, object: nil)
        router.suspend()
        for number in 0..<4 { router.receive(.testing("n", "\(number)")) }
        _ = router.resume()
        router.flush()
        #expect(log.all == ["0", "1"])
        router.receive(.testing("n", "4"))
        #expect(log.all == ["0", "1"])
        _ = router.resume()
        router.receive(.testing("n", "5"))
        #expect(log.all == ["0", "1", "2", "3", "4", "5"], "what waited comes before what arrives")
        #expect(observer.counts == DeliveryCounts(delivered: 6))
        observer.cancel()
        _ = log.take()
        let second = Registration(.immediate, .standard, .hold, gate: router.gate) { _ in log.add("second") }
        let first = Registration(.immediate, .standard, .hold, gate: router.gate) { _ in
            log.add("first")
            second.cancel()
        }
        for observer in [first, second] { _ = router.add(observer, name: nil, object: nil) }
        router.suspend()
        for _ in 0..<2 { router.receive(.testing("n", nil)) }
        _ = router.resume()
        router.flush()
        #expect(log.all == ["first", "first"])
    }
}
