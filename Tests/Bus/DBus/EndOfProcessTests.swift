import Foundation
import Glibc
import NotifyCenterTestKit
import Testing

@testable import DBus

#if NOTIFY_CENTER_TSAN
private let isThreadSanitized = true
#else
private let isThreadSanitized = false
#endif

@Suite("A process that ends or forks")
struct EndOfProcessTests {
    @Test(
        "a process that observes and posts loses no post when it ends",
        arguments: [
            "observe-post-return", "observe-post-exit", "observe-post-exit-on-reading-thread",
            "observe-post-close-exit", "observe-post-flush-_exit",
        ]
    )
    func endOfProcess(_ way: String) async throws {
        let bus = try PrivateBus()
        let counter = try Counter(try DBusConnection.open(bus.bus))
        var promised = 0
        for _ in 0..<20 {
            let start = ContinuousClock.now
            let probe = try ChildProcess(ChildProcess.built("bus-probe"), [bus.address, way, "200"])
            #expect(await probe.exitStatus() == 0)
            // A process waits at most two seconds for the bus when it ends. If the machine stalled that long, posts may
            // be lost.
            if ContinuousClock.now - start < .seconds(2) { promised += 200 }
        }
        #expect(promised >= 2000)
        // The bus forwards in order everything that it has read so far.
        try await DBusConnection.open(bus.bus).flush()
        try await eventually("all arrive", within: .seconds(60)) { counter.arrived >= promised }
        #expect(counter.arrived <= 4000)
    }

    /// In “fork”, the child frees inherited objects. In “fork-inside”, the fork cannot get libdbus's locks, and the
    /// child refuses to post.
    @Test(
        "a forked child waits for no lock of its parent",
        .enabled(if: !isThreadSanitized, "ThreadSanitizer's locks do not survive a fork beside threads"),
        arguments: ["fork", "fork-inside"]
    )
    func forkedChild(_ way: String) async throws {
        let bus = try PrivateBus()
        let probe = try ChildProcess(ChildProcess.built("bus-probe"), [bus.address, way, "200"])
        #expect(await probe.exitStatus() == 0)
    }

    @Test("a signal that arrives before the wait for it is not lost", arguments: [SIGTERM, SIGINT])
    func earlySignal(_ signal: Int32) async throws {
        for _ in 0..<5 {
            let probe = try ChildProcess(ChildProcess.built("bus-probe"), ["-", "end", "\(signal)"])
            #expect(await probe.exitStatus(within: .seconds(60)) == 0)
        }
    }

    @Test("a program started with signals ignored ignores SIGINT and ends at SIGTERM")
    func ignoredSignals() async throws {
        let command = [ChildProcess.built("bus-probe"), "-", "end"].joined(separator: " ")
        let deaf = try ChildProcess("sh", ["-c", "trap '' INT TERM; exec \(command) \(SIGINT)"])
        // When it waits, it has handled SIGINT, and it waits forever.
        try await eventually("it has installed its handler") { deaf.hearsSignal(SIGTERM) }
        #expect(deaf.isRunning && !deaf.hearsSignal(SIGINT))
        deaf.send(SIGTERM)
        #expect(await deaf.exitStatus(within: .seconds(60)) == 0)
    }
}

extension ChildProcess {
    /// Whether the process has a handler for the signal, according to the kernel.
    fileprivate func hearsSignal(_ signal: Int32) -> Bool {
        let status = (try? String(contentsOfFile: "/proc/\(identifier)/status", encoding: .utf8)) ?? ""
        let line = status.split(separator: "\n").first { $0.hasPrefix("SigCgt:") }
        let mask = line.flatMap { UInt64($0.dropFirst(7).filter { !$0.isWhitespace }, radix: 16) } ?? 0
        return mask & 1 << UInt64(signal - 1) != 0
    }
}
