import DBusTransport
import Foundation
import NotifyCenterTestKit
import NotifydProtocol
import Testing

/// What anybody on the bus may send to a process that uses notify(3), in notifyd's name and otherwise.
@Suite(.timeLimit(.minutes(5)))
struct HostileSignalTests {
    private let bus: PrivateBus
    private let probe: Probe
    private let notifyd: StandInNotifyd
    private let stranger: DBusConnection
    /// The probe's name on the bus.
    private let target: String
    private let token: Int32

    init() async throws {
        bus = try PrivateBus()
        notifyd = try await StandInNotifyd(on: bus.bus)
        // Large blocks go back to the system when they are freed, wherever small ones lie: what is resident is what is in use.
        probe = try Probe(bus.environment.merging(["MALLOC_MMAP_THRESHOLD_": "65536"]) { $1 })
        token = try await probe.register("dispatch", "menu")
        let heard = notifyd
        try await eventually("the process has told of its name") {
            heard.processes.count == 1 && heard.words.contains(.report)
        }
        target = try #require(notifyd.processes.first)
        stranger = try DBusConnection.open(bus.bus)
    }

    private func signal(
        _ member: String,
        _ arguments: [DBusValue] = [],
        isDirected: Bool = true
    ) throws -> DBusMessage {
        try .signal(
            path: NotifydProtocol.path,
            interface: NotifydProtocol.interface,
            member: member,
            arguments: arguments,
            destination: isDirected ? target : nil
        )
    }

    /// Waits until the process has read what was sent to it before, and hears a post.
    private func expectHeard(_ what: Comment? = nil) async throws {
        let before = probe.calls(token)
        try await stranger.flush()
        try await notifyd.connection.flush()
        #expect(try await probe.ask("post menu") == "status 0")
        try await eventually("the post is heard") { probe.calls(token) == before + 1 }
    }

    private var reports: Int { notifyd.words.count { $0 == .report } }

    // Rules, a.11: the sender is notifyd, or the signal is nothing.
    @Test func signalsOfStrangersInNotifydsNameChangeNothing() async throws {
        let before = reports
        let forged: [(String, [DBusValue])] = [
            ("Suspend", []), ("Changed", [.int32(token)]), ("Tell", [.uint64(1), .boolean(true)]), ("Nothing", []),
        ]
        for (member, arguments) in forged { try stranger.send(try signal(member, arguments)) }
        // To all: the rule names notifyd, so that it arrives nowhere.
        try stranger.send(try signal("Tell", [.uint64(1), .boolean(true)], isDirected: false))
        try await expectHeard()
        #expect(reports == before)
    }

    @Test func argumentsOfOtherTypesAreIgnored() async throws {
        let before = reports
        let wrong: [(String, [DBusValue])] = [
            ("Changed", []), ("Changed", [.string("1")]), ("Changed", [.variant(.int32(token))]),
            ("Changed", [.int32(token), .int32(token)]), ("Changed", [.int32(.min)]), ("Changed", [.int32(.max)]),
            ("Tell", [.uint64(1), .boolean(true)]),
        ]
        for (member, arguments) in wrong { try notifyd.connection.send(try signal(member, arguments)) }
        for arguments: [DBusValue] in [
            [], [.uint64(1)], [.int64(1), .boolean(true)], [.uint64(1), .uint32(1)],
            [.string(""), .array([], of: "v")],
            [.uint64(1), .boolean(true), .boolean(true)],
        ] {
            try notifyd.connection.send(try signal("Tell", arguments, isDirected: false))
        }
        try await expectHeard()
        #expect(reports == before)
        // The genuine ones, to see that the others arrived where these do.
        try notifyd.connection.send(try signal("Tell", [.uint64(1), .boolean(true)], isDirected: false))
        let heard = notifyd
        try await eventually("it reports") { heard.words.count { $0 == .report } == before + 1 }
        try notifyd.connection.send(try signal("Suspend"))
        try await notifyd.connection.flush()
        let calls = probe.calls(token)
        #expect(try await probe.ask("post menu") == "status 0")
        try notifyd.connection.send(try signal("Resume"))
        try await eventually("what was held back comes") { probe.calls(token) == calls + 1 }
    }

    // A body is read when sender and signature are right, and then it is small.
    @Test(arguments: ["Changed", "Tell", "Suspend", "Posted"])
    func aHugeBodyIsNotRead(member: String) async throws {
        // Reading it would take hundreds of megabytes.
        let huge: [DBusValue] = [.array(Array(repeating: .variant(.int64(1)), count: 1 << 20), of: "v")]
        func peak(_ message: consuming DBusMessage, from sender: DBusConnection) async throws -> Int {
            try sender.send(message)
            try await expectHeard()
            return try peakResidentKiB()
        }
        // Of a member that is ignored at once; several times, because libdbus's buffers grow with how the message comes in.
        var usual = 0
        for _ in 0..<3 { usual = try await peak(try signal("Other", huge), from: stranger) }
        for sender in [stranger, notifyd.connection] {
            let now = try await peak(try signal(member, huge), from: sender)
            #expect(now <= usual + 40 << 10, "KiB; before \(usual)")
        }
    }

    private func peakResidentKiB() throws -> Int {
        let status = try String(contentsOfFile: "/proc/\(probe.process.identifier)/status", encoding: .utf8)
        let line = try #require(status.split(separator: "\n").first { $0.hasPrefix("VmHWM:") })
        return try #require(line.split(whereSeparator: { !$0.isNumber }).first.flatMap { Int($0) })
    }
}
