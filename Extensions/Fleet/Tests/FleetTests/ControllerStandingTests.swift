import Basics
import Fleet
import Testing

/// The controller never claims more about a device than it knows.
@Suite("The states of devices at the controller")
struct ControllerStandingTests {
    @Test("the end of a session counts from the last connection plus the limit")
    func endsBy() throws {
        var controller = try ControllerState.listing("a")
        var report = DeviceReport.done(seen: 100)
        (report.contactTimeout, report.session) = (600, 9)
        // Presences, or a live report, which shows that the device is connected after all.
        let events: [(isOnline: Bool?, now: Double, endsBy: Double?)] = [
            // The server has not sent the device's presence.
            (nil, 50, nil),
            // The device receives heartbeats until shortly before it is gone, long after its last report.
            (true, 60, nil), (false, 5000, 5600), (true, 6000, nil), (false, 7000, 7600), (nil, 7100, nil),
            (false, 7200, 7800),
        ]
        for event in events {
            if let isOnline = event.isOnline {
                controller.hear(isOnline: isOnline, now: event.now)
            } else {
                report.sequence += 1
                controller.hear(report, now: event.now)
            }
            #expect(controller.devices["a"]?.endsBy == event.endsBy, "at \(event.now)")
        }
        for change: (inout DeviceReport) -> Void in [
            { $0.mode = DeviceReport.unknownMode }, { $0.session = nil }, { $0.contactTimeout = nil },
            { $0.result = .init(order: 100, outcome: .refused, ended: 7) },
        ] {
            var other = report
            change(&other)
            var copy = controller
            other.sequence += 1
            // As a retained message, which shows no connection.
            copy.received(.reported(device: "a"), .reported(other), sent: nil, now: 7300)
            #expect(copy.devices["a"]?.isOnline == false && copy.devices["a"]?.endsBy == nil)
        }
    }

    @Test("presences count until the server accepts the controller anew")
    func staleConnections() throws {
        var controller = try ControllerState.listing("a")
        try controller.issue(.all)
        controller.hear(isOnline: true)
        let known = controller.revision
        controller.disconnected()
        #expect(controller.devices["a"]?.isOnline == true, "the last known state stays")
        controller.connected()
        #expect(controller.devices["a"]?.isOnline == nil)
        #expect(try #require(controller.devices["a"]).changedAt > known, "the followers of the fleet are told")
        _ = controller.nextPresenceWanted(now: 10)
        #expect(controller.nextPresenceWanted(now: 30) == .devices(["a"]))
    }

    @Test("FL-14: a device removed from the list counts for no order")
    func removed() throws {
        var controller = try ControllerState.listing("a", "b")
        for target in [.devices(["a", "b"]), .group("wards"), .all] as [OrderTarget] {
            try controller.issue(target)
        }
        func totals() -> [UInt64] {
            controller.orders.map { controller.progress(of: $0, now: 0, atMost: 9).counts.total }
        }
        #expect(totals() == [2, 2, 2])
        _ = try controller.list(["b"], groups: nil)
        #expect(totals() == [1, 1, 1])
        for order in controller.orders { #expect(controller.standings(of: order, now: 0).map(\.name) == ["a"]) }
        // It still reports, as an unlisted device.
        controller.hear("b", isOnline: true)
        let stranger = try #require(controller.devices["b"])
        #expect(controller.devices.filter { !$0.value.isListed }.map(\.key) == ["b"])
        #expect(totals() == [1, 1, 1] && controller.orders.allSatisfy { !$0.isFor("b", stranger) })
        // With no listed device no order waits.
        _ = try controller.list(["a"], groups: nil)
        #expect(totals() == [0, 0, 0])
        #expect(controller.orders.allSatisfy { controller.progress(of: $0, now: 0, atMost: 9).counts.undone == 0 })
    }

    @Test("enforced apps do not count as receipts and are counted separately")
    func enforced() throws {
        var controller = try ControllerState.listing("a")
        let order = try controller.issue(.all)
        var report = DeviceReport.done(seen: 101)
        report.rounds = [.init(session: 7, finished: 1, waived: 2, enforced: 3, owing: [])]
        controller.hear(try DeviceReport(report.json))
        #expect(try controller.standing() == .clean(waived: 2, enforced: 3))
        let counts = controller.progress(of: order, now: 0, atMost: 9).counts
        #expect(counts.waived == 2 && counts.enforced == 3)
        #expect(try OrderCounts(counts.text) == counts)
        #expect(try OrderCounts("0 0 0 0 0 0 1 2").waived == 2)
    }

    @Test(
        "FL-11: an app with an unreadable entry counts as pending",
        arguments: [
            #"{"app":"\#(String(repeating: "a", count: 700))","progress":"told"}"#, #"{"app":1,"progress":"told"}"#,
            #"{"progress":"told"}"#, "7", #"{"app":"a\u0000","progress":"\#(String(repeating: "p", count: 99))"}"#,
        ]
    )
    func badEntry(entry: String) throws {
        var controller = try ControllerState.listing("a")
        try controller.issue(.all)
        let text = """
            {"seen":{"all":101,"own":0},"mode":"shared","sequence":9,"result":{"order":101,"outcome":"signed-out","ended":7},
             "rounds":[{"session":7,"finished":1,"owing":[\(entry),{"app":"notes","progress":"told"}],"steps":[\(entry),1]}]}
            """
        let report = try DeviceReport(try JSONValue(parsing: Array(text.utf8), limits: JSONLimits(size: 16 << 10)))
        controller.hear(report)
        let device = try #require(controller.devices["a"]?.report)
        #expect(device.rounds.first?.owes == 2 && device.rounds.first?.owing.last?.app == "notes")
        #expect(device.rounds.flatMap(\.owing).allSatisfy { $0.app.utf8.count < 200 && $0.progress.count <= 21 })
        #expect(try !controller.standing().isDone)
    }
}
