import DBusTransport
import Foundation
import NotifyCenterTestKit
import NotifydProtocol
import Testing

/// The state and paths that notifyd keeps for processes with the library.
@Suite struct NotifydTests {
    let bus: PrivateBus
    let (first, second): (Probe, Probe)

    init() throws {
        bus = try PrivateBus()
        (first, second) = (try Probe(bus.environment), try Probe(bus.environment))
    }

    /// A cancellation waits for nobody, so that the bus may read first what another process sends after it. A registration waits for the bus.
    private func waitUntilTheBusHasRead(_ probe: Probe) async throws {
        _ = try await probe.register("check", "another")
    }

    // Rules, a.11, and CF-W4
    @Test func stateIsSharedByAllProcessesAndDiesWithTheLastRegistration() async throws {
        // The probes registered before it started, so that it has to ask them.
        let (mine, other) = (try await first.register("check", "menu"), try await second.register("dispatch", "menu"))
        let notifyd = try await startNotifyd(on: bus)
        defer { notifyd.kill() }
        #expect(try await second.ask("get \(other)") == "state 0")
        #expect(try await first.ask("set \(mine) 18446744073709551615") == "status 0")
        #expect(try await second.ask("get \(other)") == "state 18446744073709551615")
        #expect(second.calls(other) == 0)
        // The process that set it ends; another still has the name.
        #expect(try await first.ask("cancel \(mine)") == "status 0")
        #expect(try await second.ask("get \(other)") == "state 18446744073709551615")
        #expect(try await second.ask("cancel \(other)") == "status 0")
        try await waitUntilTheBusHasRead(second)
        let again = try await first.register("plain", "menu")
        #expect(try await first.ask("get \(again)") == "state 0")
    }

    // Rules, a.11: it ends with the last registration, at once.
    @Test func aStateEndsAtOnceEvenIfItsNameIsSoonRegisteredAgain() async throws {
        let notifyd = try await startNotifyd(on: bus)
        defer { notifyd.kill() }
        for _ in 0..<50 {
            var token = try await first.register("check", "menu")
            #expect(try await first.ask("set \(token) 5") == "status 0")
            #expect(try await first.ask("cancel \(token)") == "status 0")
            token = try await first.register("check", "menu")
            #expect(try await first.ask("get \(token)") == "state 0")
            // If the name is handed on to another process, the state stays.
            #expect(try await first.ask("set \(token) 6") == "status 0")
            let other = try await second.register("check", "menu")
            #expect(try await first.ask("cancel \(token)") == "status 0")
            #expect(try await second.ask("get \(other)") == "state 6")
            #expect(try await second.ask("cancel \(other)") == "status 0")
        }
    }

    // Rules, a.11: a process that is killed has no registrations any more.
    @Test func stateDiesWithAProcessThatIsKilled() async throws {
        let notifyd = try await startNotifyd(on: bus)
        defer { notifyd.kill() }
        let mine = try await first.register("check", "menu")
        #expect(try await first.ask("set \(mine) 5") == "status 0")
        first.process.kill()
        #expect(await first.process.exitStatus() == 128 + 9)
        try await eventually("notifyd has heard of it") {
            let other = try await second.register("check", "menu")
            let state = try await second.ask("get \(other)")
            _ = try await second.ask("cancel \(other)")
            return state == "state 0"
        }
    }

    // Rules, a.12: a restart loses nothing that a living process can tell it again; the newest value wins.
    @Test func aRestartOfNotifydLosesNothing() async throws {
        let notifyd = try await startNotifyd(on: bus)
        let tokens = (try await first.register("check", "menu"), try await second.register("dispatch", "menu"))
        let order = try await second.register("check", "order")
        #expect(try await first.ask("set \(tokens.0) 1") == "status 0")
        #expect(try await second.ask("set \(tokens.1) 2") == "status 0")
        #expect(try await first.ask("set \(tokens.0) 3") == "status 0")
        #expect(try await second.ask("set \(order) 4") == "status 0")
        notifyd.kill()
        _ = await notifyd.exitStatus()
        // Observers do not notice.
        #expect(try await first.ask("post menu") == "status 0")
        try await eventually { second.calls(tokens.1) == 1 }
        let next = try await startNotifyd(on: bus)
        defer { next.kill() }
        // It waits for the processes, for a limited time on a busy machine.
        try await eventually("it knows both states") {
            let states = (try await second.ask("get \(tokens.1)"), try await second.ask("get \(order)"))
            return states == ("state 3", "state 4")
        }
        // It knows who is registered: the state goes with the last of them.
        _ = try await first.ask("cancel \(tokens.0)")
        #expect(try await second.ask("get \(tokens.1)") == "state 3")
        _ = try await second.ask("cancel \(tokens.1)")
        try await waitUntilTheBusHasRead(second)
        let again = try await first.register("check", "menu")
        #expect(try await first.ask("get \(again)") == "state 0")
    }

    // Rules, a.3
    @Test func aSuspendedProcessIsNotifiedOnceWhenItIsResumed() async throws {
        let notifyd = try await startNotifyd(on: bus)
        defer { notifyd.kill() }
        let tokens = (try await first.register("dispatch", "menu"), try await second.register("dispatch", "menu"))
        let process = first.process.identifier
        #expect(try await second.ask("suspend-process \(process)") == "status 0")
        #expect(try await second.ask("suspend-process \(process)") == "status 0")
        for _ in 0..<3 { #expect(try await second.ask("post menu") == "status 0") }
        try await eventually { second.calls(tokens.1) == 3 }
        // A call that waits for an answer: the earlier post has arrived and is held back.
        #expect(try await first.ask("get \(tokens.0)") == "state 0")
        #expect(try await second.ask("resume-process \(process)") == "status 0")
        #expect(try await first.ask("get \(tokens.0)") == "state 0")
        #expect(first.calls(tokens.0) == 0)
        #expect(try await second.ask("resume-process \(process)") == "status 0")
        try await eventually { first.calls(tokens.0) == 1 }
        #expect(try await second.ask("suspend-process 1") != "status 0")
    }

    // Rules, a.13: only the registration that monitors the path is notified, also when the path is created.
    @Test func aPathNotifiesTheRegistrationThatMonitorsIt() async throws {
        let folder = try TemporaryDirectory("notify-paths")
        let path = "\(folder.path)/there/file"
        let (watching, other) = (
            try await first.register("dispatch", "menu"), try await second.register("dispatch", "menu")
        )
        let checking = try await first.register("check", "menu")
        _ = try await first.ask("read \(checking)")
        // The kernel has few inotify instances, and frees those of ended processes with a delay.
        try await eventually("the path is monitored") {
            try await first.ask("monitor \(watching) \(path) 0") == "status 0"
        }
        #expect(try await first.ask("monitor \(watching) \(path) 0") == "status 6")
        #expect(try await first.ask("monitor \(checking) relative 0") == "status 6")
        try FileManager.default.createDirectory(atPath: "\(folder.path)/there", withIntermediateDirectories: false)
        try Data("x".utf8).write(to: URL(filePath: path))
        try await eventually("the file comes to be") { first.calls(watching) > 0 }
        #expect(second.calls(other) == 0)
        #expect(try await first.ask("read \(checking)") == "check 0")
        // Check tokens too.
        #expect(try await first.ask("monitor \(checking) \(path) 0") == "status 0")
        try Data("y".utf8).write(to: URL(filePath: path))
        try await eventually("the check token is true") { try await first.ask("read \(checking)") == "check 1" }
        #expect(try await first.ask("cancel \(watching)") == "status 0")
        let before = first.calls(watching)
        _ = try await first.ask("read \(checking)")
        for text in ["z", "zz", "zzz"] {
            try Data(text.utf8).write(to: URL(filePath: path))
            try await eventually("the other token is true") { try await first.ask("read \(checking)") == "check 1" }
        }
        // A call that was under way may be told late.
        #expect(first.calls(watching) < before + 3)
    }

    // Rules, a.8: also if notifyd posts.
    @Test func aPostOfAUsersNameIsSeenAfterACallThatWaits() async throws {
        let notifyd = try await startNotifyd(on: bus)
        defer { notifyd.kill() }
        let name = "user.uid.\(geteuid()).menu"
        let token = try await first.register("check", name)
        for _ in 0..<5 {
            _ = try await first.ask("read \(token)")
            #expect(try await first.ask("post-and-read \(token) \(name)") == "check 1")
            #expect(try await first.ask("read \(token)") == "check 0")
        }
    }

    @Test func itsStatusIsWrittenWithTheCallersPermissions() async throws {
        let notifyd = try await startNotifyd(on: bus)
        defer { notifyd.kill() }
        _ = try await first.register("dispatch", "menu")
        let folder = try TemporaryDirectory("notify-status")
        #expect(try await second.ask("dump \(folder.path)/status") == "status 0")
        let text = try String(contentsOfFile: "\(folder.path)/status", encoding: .utf8)
        #expect(text.contains("menu"))
        #expect(text.contains("\(first.process.identifier)"))
        #expect(try await second.ask("dump \(folder.path)/no/such/folder") == "status 1000000")
        // It would wait for a reader.
        #expect(mkfifo("\(folder.path)/pipe", 0o600) == 0)
        #expect(try await second.ask("dump \(folder.path)/pipe") == "status 1000000")
    }

    // Rules, a.5: a wait for notifyd must not need a thread that tasks share.
    @Test func tasksPostAReservedNameEvenOnFewThreads() async throws {
        let notifyd = try await startNotifyd(on: bus)
        defer { notifyd.kill() }
        let name = "user.uid.\(geteuid()).menu"
        let token = try await first.register("check", name)
        _ = try await first.ask("read \(token)")
        #expect(try await first.ask("post-in-tasks \(name)") == "posted")
        #expect(try await first.ask("read \(token)") == "check 1")
    }
}
