import DBus
import Glibc
import NotifyCenter
@_spi(Extensions) import NotifyCenterTestKit
import Testing

/// Signals that any process on the bus may send to a process that uses notify(3), in notifyd's name or not.
@Suite(.timeLimit(.minutes(5)))
struct HostileSignalTests {
    private let bus: PrivateBus
    private let probe: Probe
    private let notifyd: StandInNotifyd
    private let stranger: DBusConnection
    /// The probe's unique bus name.
    private let target: String
    private let token: Int32

    init() async throws {
        bus = try PrivateBus()
        notifyd = try await StandInNotifyd(on: bus.bus)
        // Frees large blocks to the system at once, so that the resident memory is the memory in use.
        probe = try Probe(bus.environment.merging(["MALLOC_MMAP_THRESHOLD_": "65536"]) { $1 })
        token = try await probe.register("dispatch", "menu")
        let heard = notifyd
        try await eventually("the process has told of its name") {
            heard.processes.count == 1 && heard.words.contains(.report)
        }
        target = try #require(notifyd.processes.first)
        stranger = try DBusConnection.open(bus.bus)
    }

    private func signal(_ member: String, _ arguments: [DBusValue] = []) throws -> DBusMessage {
        try .signal(
            path: NotifydProtocol.path,
            interface: NotifydProtocol.interface,
            member: member,
            arguments: arguments,
            destination: target
        )
    }

    /// Waits until the process has read all earlier messages, and hears a post.
    private func expectHeard(_ what: Comment? = nil) async throws {
        let before = probe.calls(token)
        try await stranger.flush()
        try await notifyd.connection.flush()
        #expect(try await probe.ask("post menu") == "status 0")
        try await eventually("the post is heard") { probe.calls(token) == before + 1 }
    }

    private var reports: Int { notifyd.words.count { $0 == .report } }

    // Rules, a.5: a reserved name comes only from notifyd, even if a forged post arrives without a match rule.
    @Test func aReservedNameIsTakenFromNotifydAlone() async throws {
        let name = "user.uid.\(geteuid()).menu"
        let reserved = try await probe.register("dispatch", name)
        let checked = try await probe.register("check", name)
        _ = try await probe.ask("read \(checked)")
        func post() throws -> DBusMessage {
            // Underscores and digits are escaped in an interface name.
            let escaped = try #require(
                MatchRule.darwinPosts(of: NotificationName(name)).description.split(separator: "'").first {
                    $0.contains("Darwin1")
                }
            )
            return try .signal(
                path: "/org/notifycenter",
                interface: String(escaped),
                member: "Posted",
                arguments: [.string(name)],
                destination: target
            )
        }
        try stranger.send(try post())
        try await expectHeard()
        #expect(probe.calls(reserved) == 0)
        #expect(try await probe.ask("read \(checked)") == "check 0")
        try notifyd.connection.send(try post())
        try await eventually("notifyd's post is heard") { probe.calls(reserved) == 1 }
    }

    // Rules, a.11: signals count only if notifyd is the sender, also while there is no notifyd.
    @Test func malformedSignalsAndThoseOfStrangersInNotifydsNameChangeNothing() async throws {
        let before = reports
        for arguments: [DBusValue] in [
            [], [.int64(1)], [.uint64(1), .boolean(true)], [.string("")], [.array([], of: "v")], [.variant(.uint64(1))],
        ] {
            try notifyd.connection.send(try signal("Tell", arguments))
        }
        try notifyd.connection.send(try signal("Suspend", [.uint32(1)]))
        try await expectHeard()
        #expect(reports == before)
        // Genuine signals show that the other ones have arrived.
        try notifyd.connection.send(try signal("Tell", [.uint64(1)]))
        let heard = notifyd
        try await eventually("the process reports again") { heard.words.count { $0 == .report } == before + 1 }
        try notifyd.connection.send(try signal("Suspend"))
        try await notifyd.connection.flush()
        let calls = probe.calls(token)
        #expect(try await probe.ask("post menu") == "status 0")
        try notifyd.connection.send(try signal("Resume"))
        try await eventually("the suspended post arrives") { probe.calls(token) == calls + 1 }
        // A signal as if the bus said that the stranger is notifyd.
        let values = [NotifydProtocol.busName, "", stranger.uniqueName ?? ""]
        for isPresent in [true, false] {
            if !isPresent { try await notifyd.connection.releaseName(NotifydProtocol.busName) }
            for member in ["Suspend", "Nothing"] { try stranger.send(try signal(member)) }
            try stranger.send(try signal("Tell", [.uint64(1)]))
            try stranger.send(
                try .signal(
                    path: "/org/freedesktop/DBus",
                    interface: "org.freedesktop.DBus",
                    member: "NameOwnerChanged",
                    arguments: values.map { .string($0) },
                    destination: target
                )
            )
            try await expectHeard()
            #expect(reports == before + 1, "notifyd is present: \(isPresent)")
        }
    }

    /// Sends a message, and returns the highest memory of the process so far.
    private func peak(after message: borrowing DBusMessage, from sender: DBusConnection) async throws -> Int {
        try sender.send(message)
        try await expectHeard()
        return try probe.process.memory().peak
    }

    // A body is read only if sender and signature are right, and then it is small.
    @Test func aHugeBodyIsNotRead() async throws {
        // Reading it would take tens of megabytes.
        let huge: [DBusValue] = [.array(Array(repeating: .variant(.int64(1)), count: 1 << 18), of: "v")]
        // Measures a signal that is ignored at once. Several times, because buffers grow with the pattern in which the
        // message arrives.
        var usual = 0
        let other = try signal("Other", huge)
        for _ in 0..<3 { usual = try await peak(after: other, from: notifyd.connection) }
        for member in ["Tell", "Suspend", "Posted"] {
            let message = try signal(member, huge)
            for sender in [stranger, notifyd.connection] {
                let now = try await peak(after: message, from: sender)
                #expect(now <= usual + 10 << 20, "\(member): before \(usual)")
            }
        }
    }

    // A path may have the length of the largest message. The process checks that notifyd is the sender before it
    // converts the path to text.
    @Test func aHugePathOfAStrangerIsNotRead() async throws {
        let path = "/" + String(repeating: "x", count: 15 << 20)
        // A call with this path, which is refused because of its length.
        let other = try DBusMessage.methodCall(
            destination: target,
            path: path,
            interface: NotifydProtocol.interface,
            member: "Other",
            options: .noReply
        )
        let message = try DBusMessage.signal(
            path: path,
            interface: NotifydProtocol.interface,
            member: "Tell",
            arguments: [.uint64(1)],
            destination: target
        )
        // Several times, because libdbus's buffers grow with the pattern in which the message arrives.
        var (usual, now) = (0, 0)
        for _ in 0..<3 { usual = try await peak(after: other, from: stranger) }
        for _ in 0..<3 { now = try await peak(after: message, from: stranger) }
        #expect(now <= usual + 12 << 20, "before \(usual)")
    }
}
