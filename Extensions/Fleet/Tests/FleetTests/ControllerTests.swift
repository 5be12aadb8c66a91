import DeviceStorage
import Fleet
import Glibc
import NotifyCenterTestKit
import Testing
import shared_device_controller

@Suite("The state machine of the controller")
struct ControllerTests {
    @Test("a change, an unlisted device and a forgotten device are news for followers")
    func changes() throws {
        var controller = try ControllerState.listing("c", "a", "b")
        let known = controller.revision
        controller.hear(.done(seen: 5))
        let changed = { controller.names.filter { controller.devices[$0]?.changedAt ?? 0 > known } }
        #expect(changed() == ["a"] && controller.forgottenAt < known)
        controller.hear("aa", isOnline: true)
        #expect(changed() == ["a", "aa"] && controller.names == ["a", "aa", "b", "c"] && controller.listedCount == 3)
        #expect(controller.names[controller.place(after: "a")...].first == "aa")
        #expect(controller.place(after: "c") == 4)
        _ = try controller.list(["b"], groups: nil)
        #expect(controller.forgottenAt > known && controller.listedCount == 2)
    }

    @Test("the file keeps the last orders and the last one for all devices")
    func keptOrders() throws {
        let directory = try TemporaryDirectory("controller-store")
        let begin = UInt64(time(nil))
        let store = try ControllerStore(directory: directory.path)
        var controller = try store.load()
        #expect(controller.highest >= begin, "a new file begins at the seconds of the clock")
        func give(_ target: OrderTarget) throws {
            let record = try controller.order(target, session: nil, reason: "", now: 0)
            try store.store(record, devices: controller.devices)
        }
        try store.store(try controller.list(["a", "b"], groups: []), devices: controller.devices)
        for target in [.all, .devices(["a"]), .all] as [OrderTarget] { try give(target) }
        let standing = controller.desired
        for _ in 0...ControllerState.mostOrders { try give(.devices(["a", "b"])) }
        let read = try store.load()
        #expect(standing != nil && read.desired == standing && read.highest == controller.highest)
        #expect(read.orders.count == ControllerState.mostOrders + 1)
        let file = try SQLiteConnection(path: directory.path + "/fleet.sqlite")
        let count = { (table: String) in
            try file.rows("SELECT count(*) FROM \(table)") { row -> Int64? in row[0] }.first
        }
        #expect(try count("fleet_order") == Int64(ControllerState.mostOrders) + 1)
        #expect(try count("order_device") == Int64(ControllerState.mostOrders) * 2)
    }

    @Test("an order's progress counts each device once, in slices too, the worst first")
    func countedInParts() throws {
        var controller = try ControllerState.listing("a", "b", "c", "e")
        let order = try controller.issue(.all)
        var progress = OrderProgress(of: order, atMost: 9)
        let (first, second) = (progress.count(1, in: controller, now: 0), progress.count(1, in: controller, now: 0))
        #expect(first && second && progress.counts.total == 2)
        // In between a counted device reports, a device is added, and an uncounted one is removed.
        controller.hear(.done(seen: 101, owing: ["notes"]))
        _ = try controller.list(["d"], groups: [])
        _ = try controller.list(["c"], groups: nil)
        while progress.count(1, in: controller, now: 0) {}
        #expect(progress.worst.map(\.name) == ["a", "b", "d", "e"] && progress.counts.total == 4)
        #expect(controller.progress(of: order, now: 0, atMost: 9).worst.map(\.name) == ["b", "d", "e", "a"])
        let short = controller.progress(of: order, now: 0, atMost: 2)
        #expect(short.worst.map(\.name) == ["b", "d"] && short.worst.first?.standing == .unknown)
        #expect(short.counts.total == 4 && short.counts.undone == 4)
    }

    @Test("old orders keep the names of pending devices only, and count the other ones")
    func manyNames() throws {
        let directory = try TemporaryDirectory("controller-names")
        let store = try ControllerStore(directory: directory.path)
        var controller = try store.load()
        controller.mostNames = 100
        let names = (0..<30).map { "d-\($0)" }
        try store.store(try controller.list(names, groups: ["all"]), devices: controller.devices)
        try store.store(try controller.list(["a", "b"], groups: []), devices: controller.devices)
        controller.connected()
        func give(_ target: OrderTarget) throws -> RecordedOrder {
            let record = try controller.order(target, session: nil, reason: "", now: 0)
            try store.store(record, devices: controller.devices)
            return try #require(controller.orders.last)
        }
        let first = try give(.devices(["a", "b", "d-7"]))
        var report = DeviceReport.done(seen: 0)
        (report.seen.own, report.result) = (first.number, .init(order: first.number, outcome: .nobody, ended: 7))
        controller.hear(report)
        for _ in 0..<10 { _ = try give(.group("all")) }
        let count = controller.orders.reduce(0) { $0 + ($1.names?.count ?? 0) }
        #expect(count <= controller.mostNames)
        #expect(controller.orders.allSatisfy { $0.number == first.number ? $0.count == 3 : $0.count == 30 })
        let short = try #require(controller.order(first.number))
        // a is done, d-7 has later orders, and only b still waits for this one.
        #expect(short.names == ["b"])
        let progress = controller.progress(of: short, now: 0, atMost: 9)
        #expect(progress.counts.total == 3 && progress.counts.undone == 2 && progress.worst.map(\.name) == ["b"])
        // The file has exactly the same content.
        let read = try store.load()
        #expect(read.orders == controller.orders)
        let file = try SQLiteConnection(path: directory.path + "/fleet.sqlite")
        let rows = try file.rows("SELECT count(*) FROM order_device") { row -> Int64? in row[0] }.first
        #expect(rows == Int64(count))
    }

    @Test("FL-11, FL-13: counts of devices' claims are read again, unreadable ones refused")
    func forgedCounts() throws {
        var counts = OrderCounts()
        let apps = UInt64(DeviceReport.mostRounds) * DeviceReport.mostApps
        for _ in 0..<300 { counts.add(.clean(waived: apps, enforced: apps)) }
        #expect(counts.waived == 300 * apps && counts.waived > 1 << 32)
        #expect(try OrderCounts(counts.text) == counts)
        for _ in 0..<3 { counts.add(.clean(waived: .max, enforced: .max)) }
        counts.addUnknown(.max)
        #expect(counts.waived == (1 << 53) - 1 && counts.enforced == counts.waived)
        #expect(try OrderCounts(counts.text) == counts)
        counts.addUnknown(1)
        #expect(counts.total == (1 << 53) - 1 + 303 && counts.undone == (1 << 53) - 1)
        let directory = try TemporaryDirectory("controller-counts")
        let store = try ControllerStore(directory: directory.path)
        var controller = try store.load()
        try store.store(try controller.list(["a"], groups: []), devices: controller.devices)
        let record = try controller.order(.devices(["a"]), session: nil, reason: "", now: 0)
        try store.store(record, devices: controller.devices)
        let file = try SQLiteConnection(path: directory.path + "/fleet.sqlite")
        var unknown = OrderCounts()
        unknown.addUnknown(3)
        try file.execute("UPDATE fleet_order SET counted = '\(unknown.text)'")
        #expect(try store.load().orders.map(\.counted) == [unknown])
        for text in [
            "1 2 3", "x 1 0 0 0 0 0 0", "1 1 0 0 0 0 0 9007199254740992", "1 1 0 0 0 0 0 0 0", "-1 0 0 0 0 0 0 0",
        ] {
            try file.execute("UPDATE fleet_order SET counted = '\(text)'")
            let refusal = #expect(throws: FleetRefusal.self) { try store.load() }
            let words = refusal?.description ?? ""
            #expect(words.contains(directory.path) && words.contains(text) && words.contains("restore it"), "\(words)")
        }
    }

    @Test("FL-2, FL-12: numbers only grow, also above the numbers seen by devices")
    func numbers() throws {
        var controller = try ControllerState.listing("a")
        try controller.issue(.all)
        #expect(controller.highest == 101)
        controller.hear(.done(seen: 5000))
        try controller.issue(.all)
        #expect(controller.highest == 5001)
        // An implausible number is ignored, because it leaves no room for later orders.
        controller.hear(.done(seen: (1 << 53) - 1, sequence: 2))
        try controller.issue(.all)
        #expect(controller.highest == 5002)
        #expect(try !controller.standing().isDone)
        #expect(controller.nextMessage(now: 60).map { $0.0 } == .allDesired)
        #expect(controller.nextMessage(now: 60).map { $0.1 } == .heartbeat(highest: 5002))
    }

    @Test("FL-12: a new order keeps the scope of pending ones: no session, else highest")
    func merging() throws {
        var alone = try ControllerState.listing("a")
        for (given, kept) in [(9, 9), (4, 9), (nil, nil), (4, nil)] as [(UInt64?, UInt64?)] {
            try alone.issue(.all, session: given)
            #expect(alone.desired?.session == kept)
        }
        alone.hear(.done(seen: alone.highest))
        try alone.issue(.all, session: 4)
        #expect(alone.desired?.session == 4)
        // Each device has its own pending session.
        let directory = try TemporaryDirectory("controller-merging")
        let store = try ControllerStore(directory: directory.path)
        var controller = try ControllerState.listing("a", "b", "c")
        try controller.issue(.devices(["a"]))
        try controller.issue(.devices(["c"]), session: 9)
        let record = try controller.order(.group("wards"), session: 7, reason: "x", now: 0)
        let sessions = ["a", "b", "c"].map { controller.devices[$0]?.desired?.session }
        #expect(sessions == [nil, 7, 9])
        #expect(controller.devices.values.allSatisfy { $0.desired?.number == controller.highest })
        #expect(controller.orders.last?.order.session == 7)
        try store.store(record, devices: controller.devices)
        #expect(try store.load().devices.mapValues(\.desired) == controller.devices.mapValues(\.desired))
    }

    @Test("FL-12: a group means its members at that time; an impossible order is refused")
    func groups() throws {
        var controller = try ControllerState.listing("a", "b")
        try controller.issue(.group("wards"), session: (1 << 53) - 1)
        _ = try controller.list(["c"], groups: ["wards"])
        // JSON cannot hold larger numbers of sessions.
        for (target, session) in [
            (.group("none"), nil), (.devices(["x"]), nil), (.all, 1 << 53), (.all, .max),
        ] as [(OrderTarget, UInt64?)] {
            #expect(throws: FleetRefusal.self) { try controller.issue(target, session: session) }
        }
        #expect(controller.orders.map(\.names) == [["a", "b"]])
    }

    @Test("FL-13, FL-14: only the device's report without open round or session counts")
    func done() throws {
        var controller = try ControllerState.listing("a")
        try controller.issue(.all)
        controller.hear("a", isOnline: true)
        #expect(try controller.standing() == .unknown)
        controller.hear(.done(seen: 100))
        #expect(try controller.standing() == .unreachable(since: 0))
        controller.hear(.done(seen: 101, owing: ["notes"], sequence: 2), now: 1)
        #expect(try controller.standing(now: 30).word == "cleaning")
        #expect(try controller.standing(now: 62).word == "stuck")
        var report = DeviceReport.done(seen: 101, sequence: 3)
        report.mode = DeviceReport.unknownMode
        controller.hear(report, now: 2)
        #expect(try !controller.standing().isDone)
        controller.hear(.done(seen: 101, sequence: 4), now: 3)
        #expect(try controller.standing() == .clean(waived: 0))
        // The device has carried out the order, so its absence changes nothing.
        controller.hear("a", isOnline: false)
        #expect(try controller.standing().isDone)
        // A later session has its own cleanups.
        controller.hear(.done(seen: 101, ended: 6, owing: ["notes"], sequence: 5), now: 4)
        #expect(try controller.standing().isDone)
        // A session that is open again has not ended.
        report = .done(seen: 101, sequence: 5)
        for (session, word) in [(7, "refused"), (6, "refused"), (8, "clean")] as [(UInt64, String)] {
            (report.session, report.sequence) = (session, report.sequence + 1)
            controller.hear(report, now: 5)
            #expect(try controller.standing().word == word, "session \(session)")
        }
    }

    @Test("FL-11: excess messages of a device and excess topics are ignored")
    func tooMuch() {
        var limiter = ReportLimiter()
        let flood = (0..<1000).map { _ in limiter.admit("a", now: 5) }
        #expect(flood.count { $0 == .read } == ReportLimiter.most && flood.count { $0 == .firstPassedOver } == 1)
        let other = limiter.admit("b", now: 5)
        // An agent at its fastest is never limited.
        let agent = (0..<100).map { limiter.admit("c", now: 5 + Double($0)) }
        let later = limiter.admit("a", now: 5 + ReportLimiter.window)
        #expect(other == .read && later == .read && agent.allSatisfy { $0 == .read })
        var many = ReportLimiter()
        for topic in 0..<(2 * ControllerState.mostDevices) { _ = many.admit("\(topic)", now: 0) }
        let admitted = [("one more", 0), ("0", 0), ("one more", ReportLimiter.window)].map { many.admit($0, now: $1) }
        #expect(admitted == [.passedOver, .read, .read])
    }

    /// The first report of an agent without a file.
    private static func firstReport(of view: DeviceView, at wall: Double) throws -> DeviceReport {
        let now = Moment.at(1, wall: wall)
        var agent = AgentTests.agent(now: now)
        return try #require(agent.handle(.device(view), now: now).report)
    }

    @Test("FL-15: old reports are ignored, until a wrong clock and a lost file explain them")
    func clockFarAhead() throws {
        // An old report is ignored, and a live one reveals a wrong clock.
        var listing = try ControllerState.listing("a")
        try listing.issue(.all)
        listing.hear(.done(seen: 101, owing: ["notes"], sequence: 9))
        listing.hear(.done(seen: 101, sequence: 8))
        #expect(try !listing.standing().isDone && listing.oldCount == 1)
        let live = DeviceReport.done(seen: 101, sequence: 10)
        listing.received(.reported(device: "a"), .reported(live), sent: 500, now: 1000)
        #expect(listing.devices["a"]?.clockOffset == -500)
        // The clock was far ahead, and the file is lost.
        let directory = try TemporaryDirectory("controller-clock")
        let store = try ControllerStore(directory: directory.path)
        var controller = try store.load()
        func hear(_ report: DeviceReport, sent: Double?, now: Double) -> Bool {
            controller.received(.reported(device: "a"), .reported(report), sent: sent, now: now)
            return controller.devices["a"]?.report == report
        }
        let early = try Self.firstReport(of: .nobody(1), at: 990)
        let far = try Self.firstReport(of: .nobody(2), at: 900_000_000)
        let right = try Self.firstReport(of: .nobody(3), at: 2000)
        let cases: [(report: DeviceReport, sent: Double?, now: Double, isHeard: Bool)] = [
            (far, 900_000_000, 1000, true),
            // The report was sent before the last report arrived.
            (early, 990, 1001, false),
            // The report was retained by the server.
            (right, nil, 2000, false),
            // The time of the message is wrong.
            (right, 5000, 2000, false),
            (right, 2000, 2001, true),
        ]
        let heard = cases.map { hear($0.report, sent: $0.sent, now: $0.now) }
        #expect(heard == cases.map(\.isHeard))
        #expect(controller.devices["a"]?.clockOffset == nil && controller.oldCount == 3)
        // The abandoned numbers are old, however they arrive, also after a restart of the controller.
        let isHeardAgain = ([nil, 900_000_000] as [Double?]).map { hear(far, sent: $0, now: 2002) }
        #expect(isHeardAgain == [false, false] && controller.oldCount == 5)
        try store.store(controller.takeUnstored(atMost: 9))
        controller = try store.load()
        let isHeardLater = hear(far, sent: nil, now: 2003)
        #expect(!isHeardLater && controller.devices["a"]?.report == right)
        // The clock is wrong again and then corrected, but the file remains: the numbers stay ahead, below the
        // abandoned ones.
        let less = try Self.firstReport(of: .nobody(4), at: 800_000_000)
        let isLessHeard = ([nil, 800_000_000, 3000] as [Double?]).map { hear(less, sent: $0, now: 3001) }
        #expect(isLessHeard == [false, false, true])
    }
}

// MARK: - Values for tests

extension ControllerState {
    /// A connected controller that lists these devices as a group, and has nothing to publish.
    static func listing(_ names: String...) throws -> ControllerState {
        var controller = ControllerState(highest: 100)
        _ = try controller.list(names, groups: ["wards"])
        controller.connected()
        while controller.nextMessage(now: 0) != nil {}
        return controller
    }

    @discardableResult
    mutating func issue(_ target: OrderTarget, session: UInt64? = nil, now: Double = 0) throws -> RecordedOrder {
        _ = try order(target, session: session, reason: "", now: now)
        return try #require(orders.last)
    }

    mutating func hear(_ device: String = "a", isOnline: Bool, now: Double = 0) {
        received(.presence(device: device), .presence(isOnline: isOnline), sent: nil, now: now)
    }

    mutating func hear(_ report: DeviceReport, from device: String = "a", now: Double = 0) {
        received(.reported(device: device), .reported(report), sent: now, now: now)
    }

    /// The progress of each listed device that the order targets and names (FL-14).
    func standings(of recorded: RecordedOrder, now: Double) -> [(name: String, standing: Standing)] {
        (recorded.names ?? Array(devices.keys)).compactMap { name in
            guard let device = devices[name], device.isListed else { return nil }
            return (name, device.standing(recorded.number, recorded.scope, highest: highest, now: now))
        }
    }

    /// Counts all devices of an order at once.
    func progress(of recorded: RecordedOrder, now: Double, atMost limit: Int) -> OrderProgress {
        var progress = OrderProgress(of: recorded, atMost: limit)
        while progress.count(.max >> 1, in: self, now: now) {}
        return progress
    }

    /// The progress of the first device with the last order.
    func standing(now: Double = 0) throws -> Standing {
        let order = try #require(orders.last)
        return try #require(standings(of: order, now: now).first).standing
    }
}

extension DeviceReport {
    /// A report that this order ended session 7, and that these apps have a pending cleanup.
    static func done(seen: UInt64, ended: UInt64 = 7, owing: [String] = [], sequence: UInt64 = 1) -> DeviceReport {
        var report = DeviceReport()
        report.seen.all = seen
        report.mode = "shared"
        report.result = .init(order: seen, outcome: .signedOut, ended: ended)
        report.rounds = [.init(session: 7, finished: 1, owing: owing.map { .init(app: $0, progress: "told") })]
        report.sequence = sequence
        return report
    }
}
