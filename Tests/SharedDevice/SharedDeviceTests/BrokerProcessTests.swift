import Basics
import DBus
import DeviceStorage
import Dispatch
import Foundation
import Glibc
import Logging
@_spi(Extensions) import NotifyCenterTestKit
import ServiceSupport
@_spi(Extensions) import SharedDevice
import Synchronization
import Testing

@testable import BrokerCore
@testable import SharedDeviceBroker

@Suite("The broker's process")
struct BrokerProcessTests {
    // MARK: The service manager

    /// A device whose broker has a service manager. With `fills`, the service manager does not read.
    private func deviceWithManager(
        _ variables: String...,
        fills: Bool = false
    ) async throws -> (DeviceOnPrivateBus, FakeServiceManager) {
        let device = try await DeviceOnPrivateBus(starts: false)
        let manager = try FakeServiceManager(in: device.directory.path)
        if fills { manager.fill() }
        device.brokerCommand = ["env", "NOTIFY_SOCKET=\(manager.path)"] + variables
        try await device.startBroker()
        return (device, manager)
    }

    @Test("it tells the service manager that it is ready, alive and stopping")
    func notifications() async throws {
        let (device, manager) = try await deviceWithManager("WATCHDOG_USEC=60000")
        try await eventually("the broker lives") { manager.words.filter { $0 == "WATCHDOG=1" }.count > 2 }
        #expect(manager.words.first == "READY=1")
        device.broker?.send(SIGTERM)
        // Read repeatedly: the kernel queues ten messages and drops further ones.
        try await eventually("the broker tells of its end") { manager.words.contains("STOPPING=1") }
        #expect(await device.broker?.exitStatus() == 0)
    }

    @Test("a service manager that does not read blocks nothing and gets “ready” later")
    func fullQueue() async throws {
        let (device, manager) = try await deviceWithManager("WATCHDOG_USEC=60000", fills: true)
        try await eventually("the failure is logged") { device.broker?.errorText.contains("trying again") == true }
        let application = device.application()
        try await application.signIn("ada")
        try await application.signOutCurrent()
        try await eventually("it is ready") { manager.words.contains("READY=1") }
        try await eventually("the broker lives") { manager.words.contains("WATCHDOG=1") }
        manager.fill()
        device.broker?.send(SIGTERM)
        #expect(await device.broker?.exitStatus(within: .seconds(30)) == 0)
        #expect(device.broker?.errorText.contains("could not tell the service manager that the service ends") == true)
    }

    @Test("without a watchdog for this process no sign of life is sent")
    func noWatchdog() {
        func watchdog(_ variables: [String: String]) -> Duration? {
            ServiceManager(environment: variables.merging(["NOTIFY_SOCKET": "/run/notify"]) { $1 })?.watchdog
        }
        #expect(watchdog(["WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "\(getpid())"]) == .seconds(1))
        for other in [["WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"], [:]] { #expect(watchdog(other) == nil) }
        for none in [[:], ["NOTIFY_SOCKET": "relative"]] { #expect(ServiceManager(environment: none) == nil) }
    }

    @Test("signs of life stop while an effect is blocked, and resume afterwards")
    func blockedEngine() async throws {
        let directory = try TemporaryDirectory("service-manager")
        let manager = try FakeServiceManager(in: directory.path)
        let engine = BrokerEngine(BrokerState(at: .now))
        let isIn = Locked(false)
        let exit = DispatchSemaphore(value: 0)
        engine.start { effect in
            // The watchdog's thread may also perform an effect. Blocking it would stop the requests themselves.
            guard case .announce = effect, Thread.current.name != "watchdog" else { return }
            // Only the first one: more events may wait by now.
            let isFirst = isIn.withLock { isIn in
                defer { isIn = true }
                return !isIn
            }
            if isFirst { exit.wait() }
        }
        let notified = try #require(
            ServiceManager(environment: ["NOTIFY_SOCKET": manager.path, "WATCHDOG_USEC": "30000"])
        )
        let asked = Locked(0)
        notified.follow {
            asked.withLock { $0 += 1 }
            return engine.hasGoneOn()
        } failed: {
            Issue.record("not ready: \($0)")
        }
        try await eventually("the engine lives") { manager.words.count > 2 }
        Thread.detachNewThread { while !isIn.withLock({ $0 }) { engine.submit(.busRestored) } }
        try await eventually("the effect is blocked") { isIn.withLock { $0 } }
        // The request in progress may still find the engine alive.
        let before = asked.withLock { $0 }
        try await eventually("the engine is asked again") { asked.withLock { $0 } > before + 2 }
        let words = manager.words.count
        try await eventually("and again") { asked.withLock { $0 } > before + 12 }
        #expect(manager.words.count == words)
        exit.signal()
        try await eventually("the engine lives again") { manager.words.count > words }
    }

    // MARK: The journal

    @Test("a blocked journal blocks neither start, sign-out nor end")
    func blockedJournal() async throws {
        let device = try await DeviceOnPrivateBus(starts: false)
        let pipe = "\(device.directory.path)/journal"
        let end = try fullPipe(at: pipe)
        defer { close(end) }
        device.brokerCommand = ["sh", "-c", #"exec 2>"$0"; exec "$@""#, pipe]
        // Without a free inotify instance the broker ends at once, and that message also goes into the pipe.
        try await eventually("it has started") { (try? await device.startBroker()) != nil }
        let application = device.application()
        try await application.signIn("ada")
        // If the pipe blocked the broker, this request would time out and throw.
        try await application.signOutCurrent()
        device.broker?.send(SIGTERM)
        #expect(await device.broker?.exitStatus(within: .seconds(30)) == 0)
    }

    @Test("a broker that cannot start ends although its last output is not read")
    func blockedLastWords() async throws {
        let directory = try TemporaryDirectory("last-words")
        let pipe = "\(directory.path)/journal"
        let end = try fullPipe(at: pipe)
        defer { close(end) }
        let start = [
            ChildProcess.built("shared-device-broker"), "--state", "/dev/null/state", "--bus", "unix:path=/nowhere",
        ]
        let broker = try ChildProcess("sh", ["-c", #"exec 2>"$0"; exec "$@""#, pipe] + start)
        #expect(await broker.exitStatus(within: .seconds(30)) == EX_CONFIG)
    }

    /// A full pipe without a reader. It stays full until the descriptor is closed.
    private func fullPipe(at path: String) throws -> CInt {
        mkfifo(path, 0o600)
        let end = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC)
        guard end >= 0 else { throw DeviceOnPrivateBus.Unexpected(description: "no pipe at \(path)") }
        let block = [UInt8](repeating: 0x2E, count: 4096)
        while write(end, block, block.count) > 0 {}
        return end
    }

    private func outputToPipe() throws -> (LogOutput, ends: [CInt]) {
        var ends: [CInt] = [0, 0]
        try #require(pipe(&ends) == 0)
        return (LogOutput(descriptor: ends[1], environment: [:]), ends)
    }

    @Test("text from another process stays on one line and cannot forge fields or levels")
    func forgedLines() async throws {
        let (output, ends) = try outputToPipe()
        let evil = "x\n<0>shared-device-broker: signed-in user=\"0\" \u{1B}[2J\u{2028}\u{202E}end\r\0"
        let metadata: Logger.Metadata = ["app": "\(evil)", "reason": "plain", "user": "1000 session=9"]
        output.logger("test", level: .info).notice("refused", metadata: metadata)
        output.finish(within: .seconds(60))
        close(ends[1])
        let lines = LineReader(ends[0]).wait()
        #expect(lines.count == 1)
        let line = try #require(lines.first)
        #expect(line.hasSuffix(#"reason=plain user="1000 session=9""#), "\(line)")
        let app = #"app="x�<0>shared-device-broker: signed-in user=\"0\" �[2J��end��""#
        #expect(line.contains(" refused \(app) "), "\(line)")
        #expect(line.unicodeScalars.allSatisfy { $0.value >= 0x20 })
    }

    @Test("dropped lines are counted, and the count is logged")
    func leftOut() async throws {
        let (output, ends) = try outputToPipe()
        let log = output.logger("test", level: .info)
        // More than the pipe and the queue can hold.
        let long = String(repeating: "l", count: 3000)
        for number in 0..<(LogOutput.capacity * 2) { log.info("\(number) \(long)") }
        let reader = LineReader(ends[0])
        output.finish(within: .seconds(60))
        log.info("last")
        output.finish(within: .seconds(60))
        close(ends[1])
        let lines = reader.wait()
        let told = lines.compactMap { line in
            line.range(of: "standard error was not read in time: ").flatMap { Int(line[$0.upperBound...]) }
        }
        // Some of the written lines report the number of dropped lines.
        #expect(lines.count - told.count + told.reduce(0, +) == LogOutput.capacity * 2 + 1)
        #expect(told.reduce(0, +) > 0)
    }

    // MARK: The kernel

    // S17
    @Test("its memory is private, and a checked password is soon gone from it")
    func privateMemory() async throws {
        let device = try await DeviceOnPrivateBus()
        let process = try #require(device.broker?.identifier)
        let limits = try String(contentsOfFile: "/proc/\(process)/limits", encoding: .utf8)
        let core = limits.split(separator: "\n").first { $0.hasPrefix("Max core file size") }
        #expect(core?.split(separator: " ").filter { $0 == "0" }.count == 2, "\(limits)")
        guard geteuid() == 0 else {
            // Its files under /proc belong to root only if the protection works.
            var information = stat()
            #expect(stat("/proc/\(process)/mem", &information) == 0 && information.st_uid == 0)
            return
        }
        // Only root can read the memory. The password remains only in libdbus's read buffer.
        try await device.application().signIn("ada")
        let broker = try BrokerAdministration(bus: device.bus.bus)
        _ = try? await broker.call(.reportActivity, ["application": .string(String(repeating: "a", count: 4000))])
        // The response may arrive before the thread that checked the password releases it.
        try await eventually("the password is gone", within: .seconds(10)) {
            try !Self.memory(of: process, contains: "correct horse ada")
        }
        #expect(try Self.memory(of: process, contains: BrokerProtocol.busName), "it can be read")
    }

    private static func memory(of process: pid_t, contains text: String) throws -> Bool {
        let memory = try FileHandle(forReadingFrom: URL(fileURLWithPath: "/proc/\(process)/mem"))
        let maps = try String(contentsOfFile: "/proc/\(process)/maps", encoding: .utf8)
        for line in maps.split(separator: "\n") where line.contains(" rw") {
            let range = line.prefix { $0 != " " }.split(separator: "-").compactMap { UInt64($0, radix: 16) }
            try memory.seek(toOffset: range[0])
            // Some regions belong to the kernel only.
            let content = try? memory.read(upToCount: Int(range[1] - range[0]))
            if content?.range(of: Data(text.utf8)) != nil { return true }
        }
        return false
    }

    // MARK: The disk

    @Test("a broker that ends writes its pending log entries")
    func lastEntries() async throws {
        try await withTaskExecutorPreference(OwnThread()) {
            // The broker waits two seconds. If the machine is stalled for that long, the result means nothing.
            for _ in 0..<10 where try await lastEntriesAreWritten() { return }
            Issue.record("the broker, or the machine, has taken two seconds to end each time")
        }
    }

    /// - Returns: whether the broker had its full waiting time.
    private func lastEntriesAreWritten() async throws -> Bool {
        let (device, manager) = try await deviceWithManager()
        let broker = try #require(device.broker)
        // A lock on the database makes the broker wait.
        let database = try device.database()
        try database.execute("BEGIN IMMEDIATE")
        let refusal = await code { try await device.application().signIn("ada", password: "wrong horse") }
        #expect(refusal == .authenticationFailed)
        // The broker now waits two seconds for the disk. No code before the rollback gives up this thread.
        let start = ContinuousClock.now
        broker.send(SIGTERM)
        var deadline = ContinuousClock.now + .seconds(60)
        while !manager.words.contains("STOPPING=1"), .now < deadline { usleep(1000) }
        // A broker that does not wait would have ended by then.
        deadline = .now + .milliseconds(300)
        while broker.isRunning, .now < deadline { usleep(1000) }
        let waits = broker.isRunning
        try database.execute("ROLLBACK")
        #expect(manager.words.contains("STOPPING=1"))
        #expect(await broker.exitStatus() == 0)
        guard ContinuousClock.now - start < .seconds(2) || !manager.words.contains("STOPPING=1") else { return false }
        #expect(waits)
        let stored = try DeviceDatabase(directory: device.state, .existing)
        #expect(try stored.auditLog(.init(event: .refused)).count == 1)
        return true
    }
}

final class FakeServiceManager: Sendable {
    let path: String
    private let descriptor: CInt
    private let address: sockaddr_un
    private let heard = Locked<[String]>([])

    init(in directory: String) throws {
        let path = "\(directory)/notify"
        let descriptor = socket(AF_UNIX, CInt(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: Array(path.utf8)) }
        (self.path, self.descriptor, self.address) = (path, descriptor, address)
        let status = withUnsafePointer(to: &address) { address in
            address.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        guard status == 0 else { throw DeviceOnPrivateBus.Unexpected(description: "no socket at \(path)") }
    }

    deinit { close(descriptor) }

    /// Fills the queue. The kernel has one queue per socket.
    func fill() {
        let sender = socket(AF_UNIX, CInt(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        defer { close(sender) }
        withUnsafePointer(to: address) { address in
            address.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                let length = socklen_t(MemoryLayout<sockaddr_un>.size)
                while sendto(sender, "x", 1, CInt(MSG_DONTWAIT), address, length) == 1 {}
            }
        }
    }

    var words: [String] {
        heard.withLock { heard in
            var buffer = [UInt8](repeating: 0, count: 4096)
            while true {
                let count = recv(descriptor, &buffer, buffer.count, CInt(MSG_DONTWAIT))
                guard count > 0 else { return heard }
                heard.append(String(decoding: buffer[..<count], as: UTF8.self))
            }
        }
    }
}

/// Reads lines on a separate thread until all writers have closed the descriptor.
private final class LineReader: Sendable {
    private let text = Locked("")
    private let ended = DispatchSemaphore(value: 0)

    init(_ descriptor: CInt) {
        Thread.detachNewThread { [self] in
            let data = try? FileHandle(fileDescriptor: descriptor, closeOnDealloc: true).readToEnd()
            text.withLock { $0 = String(decoding: data ?? Data(), as: UTF8.self) }
            ended.signal()
        }
    }

    func wait() -> [String] {
        ended.wait()
        return text.withLock { $0 }.split(separator: "\n").map(String.init)
    }
}
