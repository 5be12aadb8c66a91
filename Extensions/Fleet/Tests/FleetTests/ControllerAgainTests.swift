import Fleet
import Testing

@Suite("Repeated requests and publications of the controller")
struct ControllerAgainTests {
    @Test("FL-6: a report with a lower order makes the controller publish it again")
    func again() throws {
        var controller = try ControllerState.listing("a")
        try controller.issue(.all)
        #expect(controller.nextMessage(now: 0)?.0 == .allDesired)
        controller.hear(.done(seen: 5), now: 1)
        #expect(controller.nextMessage(now: 1) == nil)
        controller.hear(.done(seen: 5, sequence: 2), now: 11)
        #expect(controller.nextMessage(now: 11)?.0 == .allDesired)
        try controller.issue(.devices(["a"]), now: 12)
        #expect(controller.nextMessage(now: 12)?.0 == .desired(device: "a"))
        controller.hear(.done(seen: 101, sequence: 3), now: 13)
        #expect(controller.nextMessage(now: 13)?.0 == .desired(device: "a"))
    }

    @Test("a possibly lost report of a connected pending device is requested again")
    func askingAgain() throws {
        var controller = try ControllerState.listing("a", "b")
        let wanted = { (time: Double) in controller.nextReportsWanted(now: time) }
        controller.hear("a", isOnline: true)
        #expect(wanted(0) == nil && wanted(100) == nil, "nothing is ordered")
        try controller.issue(.all, now: 100)
        let times = (101...1100).filter { wanted(Double($0)) == .devices(["a"]) }
        #expect(times == [115, 145, 205, 325, 565, 1045])
        try controller.issue(.devices(["a"]), now: 1100)
        #expect(wanted(1114) == nil && wanted(1115) == .devices(["a"]))
        // An absent, unlisted or finished device has nothing to report.
        var report = DeviceReport.done(seen: controller.highest)
        report.seen.own = controller.highest
        controller.hear(report)
        controller.hear("x", isOnline: true)
        #expect(wanted(5000) == nil)
        controller.hear("b", isOnline: true)
        #expect(wanted(5014) == nil && wanted(5015) == .devices(["b"]))
        controller.disconnected()
        #expect(wanted(9000) == nil)
        // Above a number of devices all reports are requested at once.
        var many = try ControllerState.listing()
        let names = (0...MessagesWanted.most).map { "d\($0)" }
        _ = try many.list(names, groups: [])
        for name in names { many.hear(name, isOnline: true) }
        try many.issue(.all)
        #expect(many.nextReportsWanted(now: 15) == .all)
    }

    @Test("a possibly lost presence of a pending device is requested again")
    func askingForPresence() throws {
        var controller = try ControllerState.listing("a", "b", "c")
        func wanted(_ time: Double) -> MessagesWanted? { controller.nextPresenceWanted(now: time) }
        controller.hear("b", isOnline: false)
        controller.hear("c", isOnline: true)
        #expect(wanted(0) == nil && wanted(100) == nil, "nothing is ordered")
        try controller.issue(.all, now: 100)
        let times = (101...1100).filter { wanted(Double($0)) == .devices(["a", "b"]) }
        #expect(times == [115, 145, 205, 325, 565, 1045])
        // A connected device is asked for its report, and a finished one for nothing.
        controller.hear("a", isOnline: true)
        #expect(wanted(2000) == .devices(["b"]))
        for name in ["a", "b"] { controller.hear(.done(seen: controller.highest), from: name) }
        #expect(wanted(9000) == nil)
    }

    @Test("the search for devices runs in slices, while devices come, go and report")
    func lookingInParts() throws {
        var controller = try ControllerState.listing("a", "b", "c", "e")
        func look(_ time: Double = 15) -> [MessagesWanted?] {
            [controller.nextReportsWanted(now: time, lookingAt: 1)]
        }
        for name in ["a", "b", "c", "e"] { controller.hear(name, isOnline: true) }
        try controller.issue(.all)
        #expect(look() + look() == [nil, nil])
        #expect(controller.isLooking)
        _ = try controller.list(["c"], groups: nil)
        _ = try controller.list(["d"], groups: [])
        controller.hear("d", isOnline: true)
        // The clock may be set back in between.
        #expect(look(1) == [nil])
        #expect(look() == [.devices(["a", "b", "d", "e"])])
        #expect(!controller.isLooking)
        // The search also ends when all devices are done.
        for name in ["a", "b", "d", "e"] { controller.hear(.done(seen: controller.highest), from: name) }
        #expect(look(1000) + look(1000) + look(1000) + look(1000) == [nil, nil, nil, nil])
        #expect(!controller.isLooking)
        // A new order restarts the search; without a connection there is none.
        #expect(look(2000) == [nil])
        #expect(controller.isLooking)
        try controller.issue(.all, now: 2000)
        #expect(!controller.isLooking)
        #expect(look(2015) == [nil])
        controller.disconnected()
        #expect(!controller.isLooking)
    }

    @Test("a rejected order is published until it is accepted or its device is removed")
    func refused() throws {
        var controller = try ControllerState.listing("a", "b")
        try controller.issue(.all)
        #expect(controller.nextMessage(now: 0)?.0 == .allDesired)
        let known = controller.revision
        let isNews = controller.refused(.allDesired, "no right", now: 0)
        #expect(isNews && controller.revision > known && controller.refusal(of: controller.orders.last) == "no right")
        func times(_ range: ClosedRange<Int>) -> [Int] {
            range.filter { time in
                var isSent = false
                while let (topic, _) = controller.nextMessage(now: Double(time)) {
                    guard topic == .allDesired else { continue }
                    isSent = true
                    let isNews = controller.refused(.allDesired, "no right", now: Double(time))
                    #expect(!isNews, "told once")
                }
                return isSent
            }
        }
        #expect(times(1...2000) == [5, 15, 35, 75, 155, 315, 635, 1235, 1835])
        controller.accepted(.allDesired)
        #expect(controller.refusal(of: controller.orders.last) == nil && times(2001...4000).isEmpty)
        // A rejection concerns no other device, and ends with its device or connection.
        let first = try controller.issue(.devices(["a"]), now: 4000)
        try controller.issue(.devices(["b"]), now: 4000)
        while controller.nextMessage(now: 4000) != nil {}
        _ = controller.refused(.desired(device: "a"), "no right", now: 4000)
        #expect(controller.refusal(of: first) == "no right" && controller.refusal(of: controller.orders.last) == nil)
        #expect(controller.nextMessage(now: 4005)?.0 == .desired(device: "a"))
        _ = try controller.list(["a"], groups: nil)
        #expect(!controller.hasRefusals)
        // The heartbeat is published again anyway.
        _ = controller.refused(.heartbeat, "no right", now: 4005)
        #expect(!controller.hasRefusals)
        _ = controller.refused(.desired(device: "b"), "no right", now: 4005)
        controller.connected()
        #expect(!controller.hasRefusals)
    }

    @Test("FL-6: a long-rejected order does not delay a newly rejected one")
    func refusedBeside() throws {
        var controller = try ControllerState.listing("a", "b")
        let own = FleetTopic.desired(device: "a")
        func sent(_ time: Int, refusing refused: FleetTopic...) -> [FleetTopic] {
            var topics: [FleetTopic] = []
            while let (topic, _) = controller.nextMessage(now: Double(time)) {
                topics.append(topic)
                if refused.contains(topic) {
                    _ = controller.refused(topic, "no right", now: Double(time))
                } else {
                    controller.accepted(topic)
                }
            }
            return topics.filter { $0 != .heartbeat }
        }
        func order(_ target: OrderTarget, at time: Int) throws { try controller.issue(target, now: Double(time)) }
        func times(_ range: ClosedRange<Int>) -> [Int] { range.filter { sent($0, refusing: own).contains(own) } }
        try order(.devices(["a"]), at: 0)
        #expect(times(0...2000) == [0, 5, 15, 35, 75, 155, 315, 635, 1235, 1835])
        try order(.all, at: 2000)
        #expect(sent(2000, refusing: own, .allDesired) == [.allDesired])
        #expect((2001...2005).filter { sent($0, refusing: own).contains(.allDesired) } == [2005])
        #expect(times(2006...4000) == [2015, 2035, 2075, 2155, 2315, 2635, 3235, 3835])
        try order(.devices(["a"]), at: 4000)
        #expect(times(4000...4020) == [4000, 4005, 4015])
        #expect(times(4021...6000).last == 5835)
        // However many other orders are issued.
        let again = try (6001...6006).filter { time in
            try order(.devices(["b"]), at: time)
            return sent(time, refusing: own).contains(own)
        }
        #expect(again == [6006])
    }
}
