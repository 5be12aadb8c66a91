import NotifyCenter
import Testing

@testable import notify

@Suite struct RegistrationTableTests {
    private typealias Table = RegistrationTable<String, Int>

    private func table(_ tokens: [CInt] = [2, 3, 4]) -> Table {
        var table = Table()
        for token in tokens { table.add(token, name: "menu", kind: .dispatch, sink: "sink \(token)", resource: 7) }
        return table
    }

    private func tokens(_ notices: [Table.Notice]) -> [CInt] { notices.map(\.token) }

    @Test func aPostNotifiesInTheOrderOfRegistration() {
        var table = table()
        table.add(5, name: "menu", kind: .check, sink: nil, resource: 7)
        table.add(6, name: "order", kind: .file, sink: "sink 6", resource: 8)
        let (menu, order, unknown) = (table.posted("menu"), table.posted("order"), table.posted("else"))
        #expect([tokens(menu), tokens(order), tokens(unknown)] == [[2, 3, 4], [6], []])
        #expect(menu.map(\.sink) == ["sink 2", "sink 3", "sink 4"])
    }

    // Rules, a.10: suspensions are counted, and the last resumption delivers one pending notification.
    @Test(arguments: [1, 2, 300]) func suspensionIsCountedAndOneNoticeStandsForAll(_ count: Int) {
        var table = table([2, 3])
        let isKnown = (0..<count).map { _ in table.suspend(2) }
        // The name's other token is still notified.
        let during = (0..<3).map { _ in tokens(table.posted("menu")) }
        #expect(!isKnown.contains(false) && during == [[3], [3], [3]])
        let resumed = (0...count).map { _ in table.resume(2) }
        // A resumption without a suspension causes no notification.
        let due: [CInt?] = Array(repeating: nil, count: count - 1) + [2, nil]
        #expect(!resumed.contains { $0 == nil } && resumed.map { $0??.token } == due)
        _ = table.suspend(2)
        let withoutAPost = table.resume(2)
        #expect(withoutAPost != nil && withoutAPost??.token == nil)
        let after = table.posted("menu")
        #expect(tokens(after) == [2, 3])
    }

    // Rules, a.10: cancelling drops the pending notification.
    @Test func aCancelledTokenIsInvalidAndNotNotifiedAnyMore() {
        var table = table([2, 3])
        _ = table.suspend(2)
        _ = table.posted("menu")
        let removed = table.remove(2)
        #expect(removed?.registration.isPending == true && removed?.lastOfName == nil)
        let (suspended, resumed, again) = (table.suspend(2), table.resume(2), table.remove(2))
        #expect(!suspended && resumed == nil && again == nil)
        let posted = table.posted("menu")
        #expect(tokens(posted) == [3])
    }

    // Rules, a.11: the state ends with the last registration.
    @Test func theNewestStateStaysUntilTheLastRegistrationOfItsNameEnds() {
        var table = table([2, 3])
        let states: [(value: UInt64, time: UInt64, state: UInt64)] = [(1, 20, 1), (2, 10, 1), (3, 20, 3)]
        for (value, time, state) in states {
            table.setState(StateReport(value: value, time: time), of: "menu")
            #expect(table.state(of: "menu") == state, "\(value) at \(time)")
        }
        table.setState(StateReport(value: 3, time: 20), of: "else")
        #expect(table.state(of: "else") == 0)
        let first = table.remove(2)
        #expect(first?.lastOfName == nil && table.state(of: "menu") == 3)
        let last = table.remove(3)
        #expect(last?.lastOfName == 7 && table.resource(of: "menu") == nil)
        table.add(4, name: "menu", kind: .check, sink: nil, resource: 7)
        #expect(table.state(of: "menu") == 0)
    }

    @Test func aStateThatCouldNotBeSetIsForgottenUnlessAnotherCameAfterIt() {
        var table = table([2])
        let (old, new, newer) = (
            StateReport(value: 1, time: 1), StateReport(value: 2, time: 2), StateReport(value: 3, time: 3)
        )
        table.setState(old, of: "menu")
        let before = table.exchangeState(new, of: "menu")
        #expect(before == old)
        table.restoreState(before, of: "menu", from: new)
        #expect(table.state(of: "menu") == 1)
        _ = table.exchangeState(new, of: "menu")
        table.setState(newer, of: "menu")
        table.restoreState(before, of: "menu", from: new)
        #expect(table.state(of: "menu") == 3)
    }

    @Test func aSuspendedProcessIsNotifiedOnceOfWhatItMissed() {
        var table = table([4, 2, 3].sorted())
        table.suspendProcess()
        table.suspendProcess()
        _ = table.suspend(3)
        for _ in 0..<2 {
            let posted = table.posted("menu")
            #expect(posted.isEmpty)
        }
        // Token 3 has its own suspension.
        let (first, second, third) = (table.resumeProcess(), table.resumeProcess(), table.resume(3))
        #expect(first.isEmpty && tokens(second) == [2, 4] && third??.token == 3)
        let none = table.resumeProcess()
        #expect(none.isEmpty)
    }

    @Test func oneRegistrationAloneIsFired() {
        var table = table()
        let monitor = MonitorReport(token: 3, path: "/etc/hosts", flags: 0)
        let (isFirst, isSecond) = (table.addMonitor(monitor), table.addMonitor(monitor))
        let fired = table.fired(3)
        #expect(isFirst && !isSecond && fired?.token == 3)
        _ = table.suspend(3)
        let (held, resumed) = (table.fired(3), table.resume(3))
        #expect(held == nil && resumed??.token == 3)
    }

    @Test func theReportHasWhatNotifydAsksFor() {
        var table = table([2, 3])
        table.add(4, name: "self.menu", kind: .check, sink: nil, resource: 1)
        table.setState(StateReport(value: 5, time: 1), of: "menu")
        _ = table.addMonitor(MonitorReport(token: 3, path: "/etc/hosts", flags: 2))
        _ = table.posted("menu")
        _ = table.suspend(2)
        table.suspendProcess()
        let brief = table.report(of: { $0 != "self.menu" }, detailed: false)
        var menu = NameReport(name: "menu", state: StateReport(value: 5, time: 1))
        #expect(brief == ProcessReport(suspensions: 1, names: [menu]))
        menu.monitors = [MonitorReport(token: 3, path: "/etc/hosts", flags: 2)]
        menu.registrations = [
            RegistrationReport(token: 2, kind: .dispatch, suspensions: 1, deliveries: 1),
            RegistrationReport(token: 3, kind: .dispatch, suspensions: 0, deliveries: 1),
        ]
        #expect(table.report(of: { $0 != "self.menu" }, detailed: true) == ProcessReport(suspensions: 1, names: [menu]))
    }
}
