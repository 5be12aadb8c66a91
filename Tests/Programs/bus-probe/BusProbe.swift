import Basics
import CLinux
import DBus
import DBusService
import Dispatch
import Glibc
import Synchronization

/// A second process for tests that need one. Its arguments are the bus or “environment”, the action, and the number of
/// repetitions.
@main
enum BusProbe {
    static func main() throws {
        let arguments = CommandLine.arguments
        guard arguments.count == 4, let count = Int(arguments[3]) else { exit(2) }
        let bus = arguments[1] == "environment" ? Bus.fromEnvironment : Bus(name: arguments[1])
        switch arguments[2] {
        case "observe-post-return": try observeAndPost(bus, count)
        case "observe-post-exit":
            try observeAndPost(bus, count)
            exit(0)
        case "observe-post-exit-on-reading-thread":
            try observeAndPost(bus, count)
            connection?.perform { exit(0) }
            while true { pause() }
        case "observe-post-close-exit":
            try observeAndPost(bus, count)
            connection?.close()
            exit(0)
        case "observe-post-flush-_exit":
            try observeAndPost(bus, count)
            try connection?.flush()
            _exit(0)
        case "fork": try forkWhileBusy(bus, count)
        case "fork-inside": try forkInside(bus)
        case "connect-in-tasks": try connectInTasks(bus, count)
        case "connect": try connect(bus)
        case "start": try start()
        case "change-environment": try changeEnvironment(bus)
        case "close-descriptors": try closeDescriptors(bus, reads: count > 0)
        case "observe-without-standard-descriptors": try observeWithoutStandardDescriptors(bus)
        case "collect": try collect(bus, count)
        case "end": try end(by: Int32(count))
        default: exit(2)
        }
    }

    /// Starts a program that is called "program".
    private static func start() throws {
        let started = try? ProgramStart.spawn("program", [], environment: [:], descriptors: [], leadsGroup: false)
        say(started.flatMap { ProgramStart.collect($0) }.map { "status \($0)" } ?? "did not start")
    }

    /// Sends this process a signal just before the process begins to wait for the signal.
    private static func end(by signal: Int32) throws -> Never {
        let end = try EndSignals()
        kill(getpid(), signal)
        Task {
            await end.first()
            exit(0)
        }
        dispatchMain()
    }

    // Unsafe for the compiler: only the main thread uses these.
    nonisolated(unsafe) private static var connection: DBusConnection?
    nonisolated(unsafe) private static var kept: (MatchRuleLease, Observation)?

    /// Receives its own posts, so that its socket holds unread data when the process ends.
    private static func observeAndPost(_ bus: Bus, _ count: Int) throws {
        let connection = try DBusConnection.open(bus)
        self.connection = connection
        let observer = connection.onSignal { _ in usleep(200) }
        kept = (try connection.addMatch(MatchRule(interface: "org.example.Ping")), observer)
        for _ in 0..<count {
            try connection.send(try .signal(path: "/a", interface: "org.example.Ping", member: "Ping"))
        }
    }

    /// Forks while other threads hold the connection's locks. The child frees all inherited objects, and then exits.
    private static func forkWhileBusy(_ bus: Bus, _ count: Int) throws {
        let connection = try DBusConnection.open(bus)
        self.connection = connection
        kept = (try connection.addMatch(MatchRule(interface: "org.example.Ping")), connection.onSignal { _ in })
        for _ in 0..<2 { _ = QuietThread.start("busy") { while true { _ = connection.statistics } } }
        let scheduler = Scheduler()
        for _ in 0..<count {
            let child = fork()
            if child == 0 {
                alarm(20)
                kept = nil
                connection.perform {}
                connection.schedule(by: scheduler)
                connection.close()
                self.connection = nil
                let error: DBusError?
                do throws(DBusError) {
                    _ = try connection.addMatch(MatchRule(interface: "org.example.Pong"))
                    error = nil
                } catch let failure {
                    error = failure
                }
                _exit(error?.code == .closed ? 0 : 1)
            }
            var status: CInt = 0
            guard child > 0, waitpid(child, &status, 0) == child, status == 0 else { exit(1) }
        }
    }

    /// Swift hides fork, and these tests need forked children.
    private static func fork() -> pid_t {
        typealias Fork = @convention(c) () -> pid_t
        guard let symbol = dlsym(nil, "fork") else { exit(3) }
        return unsafeBitCast(symbol, to: Fork.self)()
    }

    /// Forks in three situations: while no thread is inside libdbus, while this thread is (as in a signal handler), and
    /// while another thread is.
    private static func forkInside(_ bus: Bus) throws {
        let connection = try DBusConnection.open(bus)
        guard outcomeInChild(of: connection) == "posted, no connection" else { exit(4) }
        CLinux_holdOffFork(CLINUX_CALL)
        guard outcomeInChild(of: connection) == "closed" else { exit(5) }
        CLinux_allowFork(CLINUX_CALL)
        guard outcomeInChild(of: connection) == "posted, no connection" else { exit(6) }
        let isInside = DispatchSemaphore(value: 0)
        _ = QuietThread.start("inside") {
            CLinux_holdOffFork(CLINUX_CALL)
            isInside.signal()
            while true { pause() }
        }
        isInside.wait()
        guard outcomeInChild(of: connection) == "closed" else { exit(7) }
    }

    private static func outcomeInChild(of connection: DBusConnection) -> String {
        let child = fork()
        if child == 0 {
            alarm(20)
            do throws(DBusError) {
                try ForkedPoster.check()
                let address = try connection.busAddress()
                try ForkedPoster.send(.signal(path: "/a", interface: "org.example.Ping", member: "Ping"), to: address)
                _ = try DBusConnection.open(connection.bus)
                _exit(1)
            } catch {
                _exit(error.code == .closed ? (error.attempted.hasPrefix("open") ? 0 : 2) : 3)
            }
        }
        var status: CInt = 0
        guard child > 0, waitpid(child, &status, 0) == child else { return "lost" }
        return [0: "posted, no connection", 2 << 8: "closed"][status] ?? "status \(status)"
    }

    /// A scheduler that admits all calls.
    private final class Scheduler: CallScheduler {
        func admit(_ call: borrowing MessageHeader) -> CallPermission { .take }
        func answered(_ caller: String, bytes: Int) {}
        func carryOut() -> ContinuousClock.Instant? { nil }
    }

    /// Runs tasks that connect, and one more task that needs only a thread. Prints "others" when that task ends,
    /// "failed" for each connecting task that finds no bus, and "connected" when all have ended.
    private static func connectInTasks(_ bus: Bus, _ count: Int) throws {
        let connected = DispatchGroup()
        for index in 0..<count {
            let connection = try DBusConnection.whenThere(bus)
            connected.enter()
            Task {
                do {
                    switch index % 4 {
                    case 0: try await connection.flush()
                    case 1: _ = try await connection.addMatch(MatchRule(interface: "org.example.Ping"))
                    case 2: try await connection.requestName("org.example.Name\(index)")
                    default: try await NameOwner(of: "org.example.Owner", on: connection) { _ in }.start()
                    }
                } catch {
                    say("failed")
                }
                connected.leave()
            }
        }
        Task {
            for _ in 0..<100 { await Task.yield() }
            say("others")
        }
        connected.wait()
        say("connected")
    }

    /// Prints the error of an attempt to connect, or "connected".
    private static func connect(_ bus: Bus) throws {
        do throws(DBusError) {
            _ = try DBusConnection.open(bus)
            say("connected")
        } catch {
            say("\(error)")
        }
    }

    /// Changes the environment, as for a program that is started later, and prints "restored" each time that the bus is
    /// back.
    private static func changeEnvironment(_ bus: Bus) throws {
        let connection = try DBusConnection.open(bus)
        for name in [Bus.environmentVariable, "DBUS_SESSION_BUS_ADDRESS"] { setenv(name, "unix:path=/nonexistent", 1) }
        let watching = try connection.onEvent { event in if case .restored = event { say("restored") } }
        say("changed")
        while readLine() != nil {}
        withExtendedLifetime(watching) {}
    }

    /// Closes all descriptors from 3 on and opens files under their numbers, as daemons do. Prints "restored", "heard"
    /// and "untouched".
    private static func closeDescriptors(_ bus: Bus, reads: Bool) throws {
        let connection = try DBusConnection.open(bus)
        let rule = MatchRule(interface: "org.example.Ping")
        if reads {
            kept = (
                try connection.addMatch(rule),
                connection.onSignal { message in if message.interface == "org.example.Ping" { say("heard") } }
            )
        }
        let watching = reads ? try connection.onEvent { if case .restored = $0 { say("restored") } } : nil
        for descriptor in (3..<CInt(1024)).reversed() { close(descriptor) }
        let files = (0..<16).map { _ in fileno(tmpfile()) }
        if reads { _ = readLine() }
        try connection.send(try .signal(path: "/a", interface: "org.example.Ping", member: "Ping"))
        try connection.flush()
        // Closing the connection does not close the program's files either.
        connection.close()
        let isUntouched = files.allSatisfy { file in
            var status = stat()
            return fstat(file, &status) == 0 && status.st_mode & S_IFMT == S_IFREG && status.st_size == 0
                && lseek(file, 0, SEEK_CUR) == 0
        }
        say(isUntouched ? "untouched" : "touched")
        withExtendedLifetime(watching) {}
    }

    /// Exits with 0 if an observing connection leaves the numbers 0 to 2 unused.
    private static func observeWithoutStandardDescriptors(_ bus: Bus) throws -> Never {
        for descriptor in 0..<CInt(3) { close(descriptor) }
        let connection = try DBusConnection.open(bus)
        kept = (try connection.addMatch(MatchRule(interface: "org.example.Ping")), connection.onSignal { _ in })
        exit((0..<3).contains { fcntl($0, F_GETFD) >= 0 } ? 1 : 0)
    }

    /// Connects by way of a program that ends at once, and prints "collected" when this process has no child.
    private static func collect(_ bus: Bus, _ count: Int) throws {
        for _ in 0..<count { _ = try? DBusConnection.open(bus) }
        var information = siginfo_t()
        while waitid(P_ALL, 0, &information, WEXITED | WNOHANG | WNOWAIT) == 0 { usleep(1000) }
        say("collected")
    }

    private static func say(_ line: String) { _ = writeAll(line + "\n", to: STDOUT_FILENO) }
}
