import Foundation
import Glibc
import NotifyCenterTestKit
import Testing

/// Processes of another user against the real notifyd, on a bus with the policies that are installed for the system bus, while honest processes
/// of root and of a third user read and set states and post. Only root can be several users.
@Suite(
    "A hostile process of another user",
    .serialized,
    .enabled(if: geteuid() == 0, "root alone has several users")
)
struct NotifydHostileTests {
    /// What notifyd may have in memory, in bytes.
    static let memory = 64 << 20
    /// The same while it gets messages of 30 MB. libdbus reads each of them before notifyd can refuse it, and has one up to three times: in its
    /// buffer, in the message, and as the beginning of the next one.
    static let memoryForLargeMessages = 128 << 20
    /// How long what depends on notifyd may take at the median.
    static let time = Duration.milliseconds(100)
    /// The same while it gets messages of 30 MB on dbus-broker, which does not check what they hold: libdbus does, for 250 ms where they have
    /// millions of values, before notifyd sees them. A call may have several of them before it, and there is time for two to four rounds, whose
    /// median was between 4 ms and 3 s: this shows only that there is an end.
    static let timeForLargeMessages = PrivateBus.Daemon.chosen == .broker ? .seconds(8) : time

    // The arguments are what the hostile process does; see its file `Deeds.swift`.

    @Test("cannot hold up others", arguments: ["calls", "newcomers", "hang-ups", "malformed", "hears-nothing"])
    func floods(deed: String) async throws { try await withstand(deed) }

    @Test("uses up nobody else's limits")
    func names() async throws { try await withstand("names") }

    @Test("cannot fill notifyd", arguments: ["big-bodies", "big-reports", "hoards"])
    func fills(deed: String) async throws {
        try await withstand(deed, memory: Self.memoryForLargeMessages, time: Self.timeForLargeMessages)
    }

    @Test(
        "cannot hold up others or fill notifyd by as much at once as the bus takes",
        .enabled(
            if: Machine.releasedProgram != nil,
            "NOTIFY_CENTER_TEST_NOTIFYD names no notifyd that was built in release"
        ),
        .enabled(
            if: PrivateBus.Daemon.chosen == .daemon,
            "dbus-broker keeps seconds of one user's calls before those of others"
        ),
        arguments: NotifydHostileTests.withoutWaiting
    )
    func unlimited(deed: String) async throws { try await withstand(deed) }

    @Test(
        "cannot fill notifyd by as much at once as dbus-broker takes, and has no effect on what comes after it",
        .enabled(
            if: Machine.releasedProgram != nil,
            "NOTIFY_CENTER_TEST_NOTIFYD names no notifyd that was built in release"
        ),
        .enabled(if: PrivateBus.Daemon.chosen == .broker, "on dbus-daemon it holds up nobody"),
        arguments: NotifydHostileTests.withoutWaiting
    )
    func passes(deed: String) async throws {
        let machine = try await Machine()
        let hostile = try machine.hostile(deed)
        defer { hostile.kill() }
        try await hostile.line { $0 == "ready" }
        // For so long the bus fills up.
        let (_, memory) = try await machine.measureMemory { try await Task.sleep(for: .seconds(2)) }
        hostile.kill()
        // What the bus has kept is read first.
        var calm = try await machine.measure(rounds: 1)
        let before = try ProcessorTime.now()
        calm = try await machine.measure(rounds: 5)
        print("hostile \(deed): notifyd had \(memory.median >> 10) kB at the median; afterwards: \(calm)")
        let isJudged = try Self.isJudged(deed, since: before)
        for figures in calm where isJudged {
            for name in Figures.names { #expect(figures[name] < Self.time, "\(name)") }
            #expect(figures.count("failed") == 0 && figures.count("wrong") == 0, "\(figures.problems)")
        }
        #expect(memory.peak < Self.memory)
        #expect(machine.notifyd?.isRunning == true)
    }

    // dbus-daemon reads nothing more of a sender while it holds too much of it. With its own limits it takes a quarter of an hour to get there.
    @Test(
        "holds up notifyd for seconds by posts that it does not read: notifyd leaves the bus, and another one goes on",
        .enabled(if: PrivateBus.Daemon.chosen == .daemon, "dbus-broker ends the connection that does not read")
    )
    func holdsUp() async throws {
        let machine = try await Machine(bytesPerConnection: 1 << 20)
        let hostile = try machine.hostile("hears-nothing")
        defer { hostile.kill() }
        try await eventually("notifyd leaves the bus") { machine.notifyd?.isRunning == false }
        #expect(await machine.notifyd?.exitStatus() == EX_UNAVAILABLE)
        #expect(machine.notifyd?.errorText.contains("the bus has read nothing for 10 s") == true)
        try await machine.startNotifyd()
        // What honest processes had asked meanwhile has failed.
        _ = try await machine.measure(rounds: 1)
        for figures in try await machine.measure(rounds: 30) {
            for name in Figures.names { #expect(figures[name] < Self.time, "\(name)") }
            #expect(figures.count("failed") == 0 && figures.count("wrong") == 0, "\(figures.problems)")
        }
        #expect(machine.notifyd?.isRunning == true)
    }

    private static let withoutWaiting: [String] = [
        "pipelines", "conversations", "unanswered-calls", "never-reads", "suspends-itself",
    ]

    @Test(
        "cannot do what others alone may do, and is told nothing of them",
        arguments: ["forged-signals", "forged-answers", "forbidden-posts", "meddles", "squats", "queues", "asks"]
    )
    func deceives(deed: String) async throws { try await withstand(deed) }

    @Test(
        "holds up no start of notifyd, and no state is lost",
        arguments: ["idles", "queues", "squats", "names", "newcomers"]
    )
    func restarts(deed: String) async throws {
        let machine = try await Machine()
        let hostile = try machine.hostile(deed)
        defer { hostile.kill() }
        try await hostile.line { $0 == "ready" }
        var waits: [Duration] = []
        let before = try ProcessorTime.now()
        for _ in 0..<3 {
            machine.killNotifyd()
            try await machine.startNotifyd()
            let figures = try await machine.measure(rounds: 3)
            waits.append(figures.map { $0["state-worst"] }.max() ?? .zero)
            for figures in figures {
                #expect(figures.count("failed") == 0 && figures.count("wrong") == 0, "\(figures.problems)")
            }
        }
        waits.sort()
        print("hostile \(deed): the first state after a start took \(waits)")
        // notifyd waits for a second for processes that do not report.
        if try Self.isJudged(deed, since: before) {
            #expect(waits[1] < (deed == "idles" ? .milliseconds(100) : .milliseconds(1500)))
        }
        #expect(hostile.lines.filter { $0.hasPrefix("LEAK") }.isEmpty, "\(Set(hostile.lines).sorted().prefix(8))")
    }

    /// Whether the processors were this test's.
    ///
    /// dbus-daemon has one queue for notifyd, and takes in more in its turn on a processor than the socket to notifyd has room for: where both wait
    /// for a processor, that queue grows whatever notifyd does.
    private static func isJudged(_ deed: String, since earlier: ProcessorTime) throws -> Bool {
        let others = try ProcessorTime.now().others(since: earlier)
        guard others >= 0.2 else { return true }
        print("hostile \(deed): times are not judged, other processes have used \(others) processors")
        return false
    }

    private func withstand(
        _ deed: String,
        memory limit: Int = Self.memory,
        time: Duration = Self.time
    ) async throws {
        let machine = try await Machine()
        let calm = try await machine.measure(rounds: 5)
        let hostile = try machine.hostile(deed)
        defer { hostile.kill() }
        try await hostile.line { $0 == "ready" }
        let before = try ProcessorTime.now()
        let (busy, memory) = try await machine.measureMemory { try await machine.measure(rounds: 30) }
        let isJudged = try Self.isJudged(deed, since: before)
        for (user, (calm, busy)) in zip(Machine.honestUsers, zip(calm, busy)) {
            print("hostile \(deed): user \(user): \(busy); before: \(calm)")
        }
        print(
            "hostile \(deed): notifyd had \(memory.median >> 10) kB at the median and \(memory.peak >> 10) kB at most"
        )
        for figures in calm + busy where isJudged {
            for name in Figures.names {
                // What takes several answers is judged by what the bus takes for one of its own, where that is much; a read of a state never is.
                let limit = name == "state" ? time : max(time, figures["bus"] * 8)
                #expect(figures[name] < limit, "\(name)")
            }
            #expect(figures.count("failed") == 0, "\(figures.problems)")
        }
        #expect(busy.allSatisfy { $0.count("wrong") == 0 }, "\(busy.map(\.problems))")
        #expect(memory.median < limit)
        // Beyond this the kernel would end it.
        #expect(memory.peak < machine.unit.memoryMax ?? 0)
        #expect(hostile.lines.filter { $0.hasPrefix("LEAK") }.isEmpty, "\(Set(hostile.lines).sorted().prefix(8))")
        #expect(hostile.isRunning, "\(hostile.errorText)")
        #expect(machine.notifyd?.isRunning == true)
    }
}

@Suite struct UnitTests {
    // Nobody else would start it for the paths that the configuration monitors; and a bus that restarts needs longer than the manager's 100 ms.
    @Test("notifyd is started again when it has lost the bus", arguments: ["systemd-system", "systemd-user"])
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

    // The limits are what systemd 252 finds, in tenths: 0 is nothing, 100 everything.
    @Test(
        "units get no more rights than they need",
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
        // A unit whose program has no absolute path is not judged.
        try text.replacing("@BINDIR@", with: "/usr/bin").write(toFile: file, atomically: true, encoding: .utf8)
        let judge = try ChildProcess(
            "systemd-analyze",
            ["security", "--no-pager", "--offline=yes", "--threshold=\(limit)", file]
        )
        #expect(await judge.exitStatus() == 0, "\(judge.lines.last ?? judge.errorText)")
    }
}
