import FoundationEssentials
import Glibc
@_spi(Extensions) import NotifyCenterTestKit
import Synchronization
import Testing

@testable import Basics
@testable import DBus

@Suite("Connecting to a bus that is stopped, silent or absent, or hangs up")
struct ConnectingTests {
    @Test("tasks that connect to a stopped bus do not block the shared task threads", .ofDaemon())
    func connectingTasks() async throws {
        try await withTaskExecutorPreference(OwnThread()) { try await judgeConnectingTasks() }
    }

    private func judgeConnectingTasks() async throws {
        let bus = try PrivateBus()
        bus.suspend()
        // More tasks than the pool has threads, in a separate process, so that no task of another test takes part.
        let count = 4 * sysconf(CInt(_SC_NPROCESSORS_ONLN))
        let probe = try ChildProcess(ChildProcess.built("bus-probe"), [bus.address, "connect-in-tasks", "\(count)"])
        try await probe.line { $0 == "others" }
        #expect(probe.lines == ["others"], "the connecting tasks still wait, for 25 seconds at most")
        bus.resume()
        try await probe.line { $0 == "connected" }
        #expect(!probe.lines.contains("failed"))
    }

    @Test("tasks that share a connection connect once, and all learn why it failed")
    func connectingTogether() async throws {
        let bus = try PrivateBus()
        let connection = try DBusConnection.whenThere(bus.bus)
        try await withThrowingTaskGroup { group in
            for _ in 0..<20 { group.addTask { try await connection.flush() } }
            try await group.waitForAll()
        }
        #expect(connection.statistics.reconnections == 0)
        bus.stop()
        let absent = try DBusConnection.whenThere(bus.bus)
        let codes = await withTaskGroup { group in
            for _ in 0..<20 {
                group.addTask {
                    do throws(DBusError) {
                        try await absent.flush()
                        return nil as DBusError.Code?
                    } catch {
                        return error.code
                    }
                }
            }
            return await group.reduce(into: []) { $0.append($1) }
        }
        #expect(codes == Array(repeating: .noBus, count: 20))
        #expect(!absent.core.state.withLock { $0.isReading })
    }

    @Test("a connection that waits for a silent bus runs jobs and can be closed at once")
    func waitingForSilentBus() async throws {
        let silent = try HangingUpBus(answersHello: false)
        var connection: DBusConnection? = try DBusConnection.whenThere(silent.bus)
        weak let core = connection?.core
        try connection?.reconnectOnReadingThread()
        try await eventually("it has said Hello") { silent.greetings == 1 }
        let jobs = Noted<Int>()
        for number in 1...3 { connection?.perform { jobs.note(number) } }
        // The connection waits 25 seconds for the bus.
        try await eventually("the jobs are done", within: .seconds(15)) { jobs.all == [1, 2, 3] }
        #expect(connection?.uniqueName == nil)
        connection = nil
        // The reading thread keeps the core alive.
        try await eventually("the thread has ended", within: .seconds(15)) { core == nil }
        silent.hangUp()
    }

    @Test("a bus that does not respond to Hello delays no connection to another bus")
    func silentHello() async throws {
        try await withTaskExecutorPreference(OwnThread()) { try await judgeSilentHello() }
    }

    private func judgeSilentHello() async throws {
        let silent = try HangingUpBus(answersHello: false)
        let ended = Locked(false)
        let opening = Task {
            await onThread {
                defer { ended.withLock { $0 = true } }
                return failure { () throws(DBusError) in try DBusConnection.open(silent.bus) }?.code
            }
        }
        try await eventually("it has said Hello") { silent.greetings == 1 }
        let bus = try PrivateBus()
        let isOpen = await onThread { (try? DBusConnection.open(bus.bus)) != nil }
        #expect(isOpen)
        #expect(!ended.withLock { $0 }, "the silent bus delayed the other connection")
        silent.hangUp()
        #expect(await opening.value == .noBus)
    }

    @Test("a bus that hangs up after Hello gets fewer and fewer connections")
    func hangingUp() async throws {
        let bus = try HangingUpBus()
        let connection = try DBusConnection.whenThere(bus.bus)
        let lease = connection.keepMatch(.ping) { _ in }
        try await eventually("it connects six times") { bus.connections.count >= 6 }
        let arrivals = bus.connections
        // The attempts come at once, then after 50, 100, 200 and 400 ms.
        #expect(arrivals[5] - arrivals[1] >= .milliseconds(700))
        connection.close()
        withExtendedLifetime(lease) {}
    }

    @Test("a process without descriptors 0 to 2 has no socket under these numbers")
    func standardDescriptors() async throws {
        let bus = try PrivateBus()
        let arguments = [bus.address, "observe-without-standard-descriptors", "1"]
        let probe = try ChildProcess(ChildProcess.built("bus-probe"), arguments)
        #expect(await probe.exitStatus() == 0)
    }

    @Test("a program that an address starts is reaped when it ends")
    func programOfAddress() async throws {
        let probe = try ChildProcess(ChildProcess.built("bus-probe"), ["unixexec:path=/bin/true", "collect", "3"])
        try await probe.line { $0 == "collected" }
    }

    @Test("an address with a bus identifier stays valid after a restart of the bus")
    func identifierInAddress() async throws {
        let bus = try PrivateBus()
        let identifier = try #require(try DBusConnection.open(bus.bus).busIdentifier)
        let address = "unix:path=/nonexistent;\(bus.address),guid=\(identifier)"
        try bus.restart()
        #expect(try DBusConnection.open(bus.bus).busIdentifier != identifier)
        try DBusConnection.open(.address(address)).close()
        // Only identifiers and autolaunch: are removed, wherever they are.
        let addresses = [
            "unix:guid=1,path=/a;tcp:host=b,guid=2,port=3", "unix:path=/guid=1;;autolaunch:", "autolaunch:;plain",
            // A semicolon and an accent after it form one character.
            "unix:guid=1;\u{301}:guid=2", "",
        ]
        let plain = addresses.map { BusAddress.connectable($0) }
        #expect(plain == ["unix:path=/a;tcp:host=b,port=3", "unix:path=/guid=1", "plain", "unix:;\u{301}:", ""])
    }

    @Test(
        "over TCP too, the first post after a restart of the bus arrives",
        .ofDaemon("dbus-broker does not listen on TCP")
    )
    func postAfterRestartOverTCP() async throws {
        let directory = try TemporaryDirectory("bus-over-tcp")
        let port = try freePort()
        let address = "tcp:host=127.0.0.1,port=\(port)"
        var options = PrivateBus.Options()
        options.configurationFiles = ["\(directory.path)/tcp.conf"]
        let configuration = """
            <busconfig><listen>\(address)</listen><auth>ANONYMOUS</auth><allow_anonymous/></busconfig>
            """
        try configuration.write(toFile: options.configurationFiles[0], atomically: true, encoding: .utf8)
        let bus = try PrivateBus(options)
        let connection = try DBusConnection.open(.address(address))
        try connection.send(try .ping())
        try bus.restart()
        let counter = try Counter(try DBusConnection.open(bus.bus))
        try connection.send(try .ping())
        try await eventually("the post arrives") { counter.arrived == 1 }
    }

    @Test("waits grow from zero to 2 s and reset only after a connection that lasted")
    func reconnectDelay() {
        let start = ContinuousClock.now
        var delay = ReconnectDelay()
        let waits = (0..<8).map { _ in delay.next() }
        #expect(waits == [.zero] + [50, 100, 200, 400, 800, 1600, 2000].map { .milliseconds($0) })
        delay.restored(at: start)
        delay.lost(at: start + .milliseconds(1999))
        #expect(delay.next() == .seconds(2))
        delay.restored(at: start)
        delay.lost(at: start + .seconds(2))
        #expect(delay.next() == .zero)
    }

    /// Clients that fill the accept queue of a stopped bus.
    private final class Line {
        private var sockets: [CInt] = []

        init(at path: String) throws {
            while true {
                let (client, isTaken) = unixSocket(at: path, kind: SOCK_NONBLOCK, connect)
                let error = errno
                sockets.append(client)
                if isTaken { continue }
                try #require(error == EAGAIN)
                return
            }
        }

        deinit { for client in sockets { close(client) } }
    }

    @Test(
        "a stopped bus with a full queue delays a connection only until the deadline",
        .ofDaemon("systemd's socket has place for thousands")
    )
    func fullLine() async throws {
        let bus = try PrivateBus()
        let address = try bus.bus.resolvedAddress()
        bus.suspend()
        let start = try #require(address.firstRange(of: "path=")).upperBound
        var line: Line? = try Line(at: String(address[start...].prefix { $0 != "," }))
        let opener = BusOpener()
        for _ in 0..<3 {
            let deadline = ContinuousClock.now + .milliseconds(100)
            let error = await onThread {
                failure { () throws(DBusError) in try BusSocket(address: address, opener: opener, by: deadline) }
            }
            #expect(
                error?.code == .noBus && error?.message.contains("taken this connection") == true,
                "\(String(describing: error))"
            )
            #expect(opener.hasLeftBehind)
        }
        bus.resume()
        withExtendedLifetime(line) {}
        // The bus limits the number of connections that wait to be admitted.
        line = nil
        let problem = await onThread {
            failure { () throws(DBusError) in try BusSocket(address: address, opener: opener) }
        }
        #expect(problem == nil)
        #expect(!opener.hasLeftBehind)
    }
}
