import Foundation
import Glibc
@_spi(Extensions) import NotifyCenterTestKit
import Testing

/// Attacks by another user's processes on the real notifyd, on a bus with the policies for the system bus. Honest
/// processes of root and of a third user read and set states and post during the attacks. Only root can start processes
/// of several users.
@Suite("A hostile process of another user", .serialized, .enabled(if: geteuid() == 0, "root alone has several users"))
struct NotifydHostileTests {
    /// The most memory that notifyd may use, in bytes.
    static let memory = 64 << 20
    /// The same limit while notifyd gets messages of 30 MB. libdbus reads a message before notifyd can refuse it, and
    /// has up to three copies: in its buffer, in the message, and as the beginning of the next one.
    static let memoryForLargeMessages = 128 << 20
    /// The longest median time of an operation that depends on notifyd.
    static let time = Duration.milliseconds(100)
    /// The same limit while notifyd gets messages of 30 MB on dbus-broker, which does not check their content. libdbus
    /// checks it before notifyd sees the message, for 250 ms if there are millions of values. Several such messages may
    /// precede a call, and there is time for two to four rounds. Their median was between 4 ms and 3 s, so this limit
    /// shows only that the delay is bounded.
    static let timeForLargeMessages = PrivateBus.Daemon.chosen == .broker ? .seconds(8) : time

    private static let isReleased: ConditionTrait = .enabled(
        if: Machine.releasedProgram != nil,
        "NOTIFY_CENTER_TEST_NOTIFYD names no notifyd that was built in release"
    )

    // The arguments are the attacks; see `Deeds.swift`.

    @Test(
        "it cannot delay other users, use their rights or learn about them",
        arguments: [
            "calls", "newcomers", "hang-ups", "malformed", "hears-nothing", "forged-signals", "forged-answers",
            "forbidden-posts", "meddles", "squats", "queues", "asks",
        ]
    )
    func floods(deed: String) async throws { try await withstand(deed) }

    @Test("it cannot use up another user's limits")
    func names() async throws { try await withstand("names") }

    @Test("it cannot fill notifyd's memory", arguments: ["big-bodies", "big-reports", "hoards"])
    func fills(deed: String) async throws {
        try await withstand(deed, memory: Self.memoryForLargeMessages, time: Self.timeForLargeMessages)
    }

    @Test(
        "it cannot delay others or fill notifyd with all calls that the bus takes",
        NotifydHostileTests.isReleased,
        .enabled(if: PrivateBus.Daemon.chosen == .daemon, "dbus-broker keeps one user's calls before those of others"),
        arguments: NotifydHostileTests.withoutWaiting
    )
    func unlimited(deed: String) async throws { try await withstand(deed) }

    @Test(
        "it cannot fill notifyd through dbus-broker, nor delay later calls",
        NotifydHostileTests.isReleased,
        .enabled(if: PrivateBus.Daemon.chosen == .broker, "on dbus-daemon it delays no other client"),
        arguments: NotifydHostileTests.withoutWaiting
    )
    func passes(deed: String) async throws {
        let machine = try await Machine()
        let hostile = try machine.hostile(deed)
        defer { hostile.kill() }
        try await hostile.line { $0 == "ready" }
        // During this time the bus fills up.
        let (_, memory) = try await machine.measureMemory { try await Task.sleep(for: .seconds(2)) }
        hostile.kill()
        // The first measurement waits for the messages that the bus has stored.
        var calm = try await machine.measure(rounds: 1)
        let before = try ProcessorTime()
        calm = try await machine.measure(rounds: 5)
        print("hostile \(deed): notifyd had \(memory.median >> 10) kB at the median; afterwards: \(calm)")
        if try Self.isJudged(deed, since: before) { expectServed(calm) }
        #expect(memory.peak < Self.memory)
        #expect(machine.notifyd?.isRunning == true)
    }

    // dbus-daemon stops reading from a sender while it holds too many bytes of it. With its default limits that takes a
    // quarter of an hour.
    @Test(
        "its unread posts stall notifyd, which leaves the bus and is replaced",
        .enabled(if: PrivateBus.Daemon.chosen == .daemon, "dbus-broker ends the connection that does not read")
    )
    func holdsUp() async throws {
        let machine = try await Machine(bytesPerConnection: 1 << 20)
        let hostile = try machine.hostile("hears-nothing")
        defer { hostile.kill() }
        try await eventually("notifyd leaves the bus") { machine.notifyd?.isRunning == false }
        #expect(await machine.notifyd?.exitStatus() == EX_UNAVAILABLE)
        #expect(machine.notifyd?.errorText.contains("the bus has read nothing for 10 s") == true)
        try await machine.runNotifyd()
        // The calls of the honest processes during the stall have failed.
        _ = try await machine.measure(rounds: 1)
        expectServed(try await machine.measure(rounds: 30))
        #expect(machine.notifyd?.isRunning == true)
    }

    private func expectServed(_ processes: [RoundFigures], within time: Duration = Self.time) {
        for figures in processes {
            for name in RoundFigures.names { #expect(figures[name] < time, "\(name)") }
            #expect(figures.count("failed") == 0 && figures.count("wrong") == 0, "\(figures.problems)")
        }
    }

    private static let withoutWaiting: [String] = [
        "pipelines", "conversations", "unanswered-calls", "never-reads", "suspends-itself",
    ]

    @Test(
        "it does not delay a start of notifyd, and no state is lost",
        arguments: ["idles", "queues", "squats", "names", "newcomers"]
    )
    func restarts(deed: String) async throws {
        let machine = try await Machine()
        let hostile = try machine.hostile(deed)
        defer { hostile.kill() }
        try await hostile.line { $0 == "ready" }
        var waits: [Duration] = []
        let before = try ProcessorTime()
        for _ in 0..<3 {
            machine.killNotifyd()
            try await machine.runNotifyd()
            let figures = try await machine.measure(rounds: 3)
            waits.append(figures.map { $0["state-worst"] }.max() ?? .zero)
            expectServed(figures, within: .seconds(60))
        }
        waits.sort()
        print("hostile \(deed): the first state after a start took \(waits)")
        // notifyd waits one second for processes that do not report.
        if try Self.isJudged(deed, since: before) {
            #expect(waits[1] < (deed == "idles" ? .milliseconds(100) : .milliseconds(1500)))
        }
        #expect(hostile.lines.filter { $0.hasPrefix("LEAK") }.isEmpty, "\(Set(hostile.lines).sorted().prefix(8))")
    }

    /// Returns whether this test had the processors for itself.
    ///
    /// dbus-daemon has one queue for notifyd. In its turn on a processor it reads more than the socket to notifyd has
    /// room for. If both wait for a processor, that queue grows whatever notifyd does.
    private static func isJudged(_ deed: String, since earlier: ProcessorTime) throws -> Bool {
        let others = try ProcessorTime().others(since: earlier)
        guard others >= 0.2 else { return true }
        print("hostile \(deed): times are not judged, other processes have used \(others) processors")
        return false
    }

    private func withstand(_ deed: String, memory limit: Int = Self.memory, time: Duration = Self.time) async throws {
        let machine = try await Machine()
        let calm = try await machine.measure(rounds: 5)
        let hostile = try machine.hostile(deed)
        defer { hostile.kill() }
        try await hostile.line { $0 == "ready" }
        let before = try ProcessorTime()
        let (busy, memory) = try await machine.measureMemory { try await machine.measure(rounds: 30) }
        let isJudged = try Self.isJudged(deed, since: before)
        for (user, (calm, busy)) in zip(Machine.honestUsers, zip(calm, busy)) {
            print("hostile \(deed): user \(user): \(busy); before: \(calm)")
        }
        print("hostile \(deed): notifyd had \(memory.median >> 10) kB, at most \(memory.peak >> 10) kB")
        for figures in calm + busy where isJudged {
            for name in RoundFigures.names {
                // An operation of several calls is compared with the bus's own time if that is long. Reading a state is
                // not.
                let limit = name == "state" ? time : max(time, figures["bus"] * 8)
                #expect(figures[name] < limit, "\(name)")
            }
            #expect(figures.count("failed") == 0, "\(figures.problems)")
        }
        #expect(busy.allSatisfy { $0.count("wrong") == 0 }, "\(busy.map(\.problems))")
        #expect(memory.median < limit)
        // Beyond this limit the kernel would end notifyd.
        #expect(memory.peak < machine.unit.memoryMax ?? 0)
        #expect(hostile.lines.filter { $0.hasPrefix("LEAK") }.isEmpty, "\(Set(hostile.lines).sorted().prefix(8))")
        #expect(hostile.isRunning, "\(hostile.errorText)")
        #expect(machine.notifyd?.isRunning == true)
    }
}

@Suite struct UnitTests {
    // Otherwise nothing would start notifyd for the configured paths. The bus needs longer to restart than the
    // manager's default of 100 ms.
    @Test("notifyd is restarted after it has lost the bus", arguments: ["systemd-system", "systemd-user"])
    func restarts(folder: String) throws {
        let unit = try Unit(contentsOf: shippedFile("\(folder)/notifyd.service"))
        #expect(unit["Restart"] == "on-failure")
        #expect(unit["RestartSec"] == "2")
        #expect(unit.memoryMax == 256 << 20)
    }

    private static let isJudgeThere: Bool = {
        guard let judge = try? ChildProcess("systemd-analyze", ["--help"]) else { return false }
        judge.waitUntilExit()
        return judge.lines.contains { $0.contains("--offline") }
    }()

    // The limits are the exposure that systemd 252 finds, in tenths: 0 for none, 100 for everything.
    @Test(
        "units get only the rights that they need",
        .enabled(if: UnitTests.isJudgeThere, "there is no systemd-analyze that reads a unit's file"),
        arguments: [
            ("systemd-system/notifyd", 3), ("systemd-user/notifyd", 7), ("systemd-system/shared-device-broker", 9),
            ("systemd-system/shared-device-identity", 11), ("systemd-system/shared-device-enforcement", 27),
            ("systemd-system/shared-device-cleanup@", 77),
        ]
    )
    func rights(unit: String, limit: Int) async throws {
        let directory = try TemporaryDirectory("unit")
        let file = "\(directory.path)/\(unit.split(separator: "/").last ?? "").service"
        let text = try String(contentsOfFile: shippedFile("\(unit).service"), encoding: .utf8)
        // systemd-analyze does not judge a unit whose program has no absolute path.
        try text.replacing("@BINDIR@", with: "/usr/bin").write(toFile: file, atomically: true, encoding: .utf8)
        let judge = try ChildProcess(
            "systemd-analyze",
            ["security", "--no-pager", "--offline=yes", "--threshold=\(limit)", file]
        )
        #expect(await judge.exitStatus() == 0, "\(judge.lines.last ?? judge.errorText)")
    }
}
