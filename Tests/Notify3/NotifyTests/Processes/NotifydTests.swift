import DBus
import Foundation
import NotifyCenter
import NotifyCenterTestKit
import Testing

/// The states and paths that notifyd stores for processes with the library.
@Suite struct NotifydTests {
    private let bus: PrivateBus
    private let notifyd: ChildProcess
    private let (first, second): (Probe, Probe)
    private let reserved = "user.uid.\(geteuid()).menu"

    init() async throws {
        bus = try PrivateBus()
        notifyd = try await startNotifyd(on: bus)
        (first, second) = (try Probe(bus.environment), try Probe(bus.environment))
    }

    private func killNotifyd() {
        notifyd.kill()
        notifyd.waitUntilExit()
    }

    /// Waits until the bus has read the probe's earlier messages. A cancellation does not wait, so the bus could read a
    /// later message of another process first. A registration waits for the bus.
    private func waitUntilTheBusHasRead(_ probe: Probe) async throws {
        _ = try await probe.register("check", "another")
    }

    // Rules, a.11: the state ends at once with the last registration.
    @Test func aStateEndsAtOnceEvenIfItsNameIsSoonRegisteredAgain() async throws {
        for _ in 0..<20 {
            var token = try await first.register("check", "menu")
            #expect(try await first.replies("set \(token) 5", "cancel \(token)") == ["status 0"])
            token = try await first.register("check", "menu")
            #expect(try await first.ask("get \(token)") == "state 0")
            // The state stays if another process registers the name first.
            #expect(try await first.ask("set \(token) 6") == "status 0")
            let other = try await second.register("check", "menu")
            #expect(try await first.ask("cancel \(token)") == "status 0")
            #expect(try await second.ask("get \(other)") == "state 6")
            #expect(try await second.ask("cancel \(other)") == "status 0")
        }
    }

    // Rules, a.11 and a.12: after a restart, living processes report everything again. The newest value wins, and a state
    // outlives the process that set it.
    @Test func aRestartOfNotifydLosesNothing() async throws {
        let tokens = (try await first.register("check", "menu"), try await second.register("dispatch", "menu"))
        let (order, news) = (try await second.register("check", "order"), try await second.register("check", "news"))
        let setter = try await first.register("check", "news")
        for value in 1...3 {
            let (probe, token) = value == 2 ? (second, tokens.1) : (first, tokens.0)
            #expect(try await probe.ask("set \(token) \(value)") == "status 0")
        }
        #expect(try await second.replies("set \(order) 4", "set \(news) 4") == ["status 0"])
        #expect(try await first.replies("set \(setter) 5", "cancel \(setter)") == ["status 0"])
        try await waitUntilTheBusHasRead(first)
        // notifyd's reply comes after its earlier signals.
        #expect(try await second.ask("get \(news)") == "state 5")
        killNotifyd()
        // Observers do not notice the restart.
        #expect(try await first.ask("post menu") == "status 0")
        try await eventually { second.calls(tokens.1) == 1 }
        let next = try await startNotifyd(on: bus)
        defer { next.kill() }
        // notifyd waits for the processes, but on a busy machine the time limit may end that wait.
        try await eventually("notifyd knows the states") {
            var states: [String] = []
            for token in [tokens.1, order, news] { states.append(try await second.ask("get \(token)")) }
            return states == ["state 3", "state 4", "state 5"]
        }
        // It knows the registrants: the state ends with the last one.
        _ = try await first.ask("cancel \(tokens.0)")
        #expect(try await second.ask("get \(tokens.1)") == "state 3")
        _ = try await second.ask("cancel \(tokens.1)")
        try await waitUntilTheBusHasRead(second)
        let again = try await first.register("check", "menu")
        #expect(try await first.ask("get \(again)") == "state 0")
    }

    // Rules, a.5 and a.8: receivers take a reserved name only from notifyd, and a post is seen after the call.
    @Test func aReservedNameIsPostedByNotifyd() async throws {
        let token = try await first.register("check", reserved)
        _ = try await first.ask("read \(token)")
        // A wait for notifyd must not need one of the threads that tasks share.
        #expect(try await first.ask("post-in-tasks \(reserved)") == "posted")
        #expect(try await first.ask("read \(token)") == "check 1")
        for _ in 0..<5 {
            _ = try await first.ask("read \(token)")
            #expect(try await first.ask("post-and-read \(token) \(reserved)") == "check 1")
            #expect(try await first.ask("read \(token)") == "check 0")
        }
        let handled = try await first.register("dispatch", reserved)
        let center = DarwinNotifyCenter(bus: bus.bus)
        let observation = try await center.observe(NotificationName(reserved), delivery: .immediate) { _ in }
        try center.post(NotificationName(reserved))
        try await eventually { first.calls(handled) == 1 && observation.counts.delivered == 1 }
        try center.queue(NotificationName(reserved))
        try await eventually { first.calls(handled) == 2 && observation.counts.delivered == 2 }
    }

    @Test func itsStatusIsWrittenWithTheCallersPermissions() async throws {
        _ = try await first.register("dispatch", "menu")
        let folder = try TemporaryDirectory("notify-status")
        #expect(try await second.ask("dump \(folder.path)/status") == "status 0")
        let text = try String(contentsOfFile: "\(folder.path)/status", encoding: .utf8)
        #expect(text.contains("menu"))
        #expect(text.contains("\(first.process.identifier)"))
        #expect(try await second.ask("dump \(folder.path)/no/such/folder") == "status 1000000")
        // Otherwise the write would wait for a reader.
        #expect(mkfifo("\(folder.path)/pipe", 0o600) == 0)
        #expect(try await second.ask("dump \(folder.path)/pipe") == "status 1000000")
    }
}
