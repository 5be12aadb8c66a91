import Foundation
import NotifyCenterTestKit
import Testing

@testable import DBus
@testable import NotifyCenter

@Suite("Signals that any process may send to the interfaces of the centers")
struct ForeignMessageTests {
    private let bus: PrivateBus
    private let center: DistributedNotifyCenter
    private let stranger: DBusConnection

    init() throws {
        bus = try PrivateBus()
        center = DistributedNotifyCenter(bus: bus.bus)
        stranger = try DBusConnection.open(bus.bus)
    }

    private func send(_ arguments: [DBusValue]) throws {
        try stranger.send(
            try .signal(
                path: "/org/notifycenter",
                interface: "org.notifycenter.Distributed1.n",
                member: "Posted",
                arguments: arguments
            )
        )
    }

    // CF-M3, CF-B1
    @Test("a name under the digest of another name is not confused with it")
    func foreignDigest() async throws {
        let (name, other) = (String(repeating: "a", count: 300), String(repeating: "b", count: 300))
        let observation = try await center.observe(NotificationName(name), delivery: .immediate) { _ in }
        let interface = InterfaceName(NotificationName(name), prefix: WireKind.distributed.prefix).description
        #expect(interface.contains(".__h"))
        for text in [other, name] {
            try stranger.send(
                try .signal(
                    path: "/org/notifycenter",
                    interface: interface,
                    member: "Posted",
                    arguments: [.string(text)]
                )
            )
        }
        try await eventually("the genuine one arrives") { observation.counts.delivered == 1 }
        #expect(center.statistics.malformed == 1)
    }

    @Test("arbitrary arguments never trap, and each signal is delivered or counted")
    func anyArguments() async throws {
        let observation = try await center.observe("n", delivery: .immediate) { _ in }
        var generator = SplitMix(state: 11)
        for _ in 0..<2000 {
            var arguments: [DBusValue] = Bool.random(using: &generator) ? [.string("n")] : []
            for _ in 0..<Int.random(in: 0...4, using: &generator) {
                arguments.append(randomValue(depth: 0, using: &generator))
            }
            try send(arguments)
        }
        try await eventually("all have arrived") {
            center.statistics.received + center.statistics.malformed == 2000
        }
        // The reading thread counts a notification before it delivers it.
        try await eventually("all that were received are delivered") {
            observation.counts.delivered == center.statistics.received
        }
    }

    private func randomValue(depth: Int, using generator: inout SplitMix) -> DBusValue {
        let texts = ["", "n", "\\0", "é𝄞", String(repeating: "x", count: 300)]
        let text = texts.randomElement(using: &generator) ?? ""
        switch Int.random(in: 0...(depth < 4 ? 13 : 9), using: &generator) {
        case 0: return .byte(.random(in: 0...255, using: &generator))
        case 1: return .boolean(.random(using: &generator))
        case 2: return .int16(.random(in: .min ... .max, using: &generator))
        case 3: return .uint32(.random(in: .min ... .max, using: &generator))
        case 4: return .int64(.random(in: .min ... .max, using: &generator))
        case 5: return .uint64(.random(in: .min ... .max, using: &generator))
        case 6: return .double(Double(bitPattern: .random(in: .min ... .max, using: &generator)))
        case 7: return .bytes((0..<3).map { _ in .random(in: 0...255, using: &generator) })
        case 8, 9: return .string(text)
        case 10: return .variant(randomValue(depth: depth + 1, using: &generator))
        case 11:
            return .structure(
                (0...Int.random(in: 0...2, using: &generator)).map { _ in
                    randomValue(depth: depth + 1, using: &generator)
                }
            )
        case 12:
            return .array((0..<2).map { _ in .variant(randomValue(depth: depth + 1, using: &generator)) }, of: "v")
        default:
            return .dictionary(
                [.init(.string(text), .variant(randomValue(depth: depth + 1, using: &generator)))],
                key: "s",
                value: "v"
            )
        }
    }

    // CF-U9
    @Test("an oversized post throws an error with the reason, and the connection stays")
    func tooLarge() async throws {
        let large = String(repeating: "x", count: 17 << 20)
        let posts: [(String, String?, UserInfo?)] = [
            (large, nil, nil), ("n", large, nil), ("n", nil, ["k": .string(large)]),
            ("n", nil, ["k": .data(Array(repeating: 0, count: 17 << 20))]), ("n", nil, [large: 1]),
        ]
        for (name, object, userInfo) in posts {
            let error = #expect(throws: DBusError.self) {
                try center.post(NotificationName(name), object: object, userInfo: userInfo)
            }
            #expect(error?.code == .tooLarge)
        }
        let observation = try await center.observe(NotificationName(String(repeating: "long.", count: 10_000))) { _ in }
        try center.post(NotificationName(String(repeating: "long.", count: 10_000)), object: "o")
        try await eventually("a name of 50 000 bytes is heard") { observation.counts.delivered == 1 }
    }

    // CF-U8, CF-U9
    @Test("an oversized notification is ignored and counted, and later ones arrive")
    func tooLargeForReceivers() async throws {
        let observation = try await center.observe("n", delivery: .immediate) { _ in }
        let darwin = DarwinNotifyCenter(bus: bus.bus)
        let other = try await darwin.observe("n", delivery: .immediate) { _ in }
        let data = DBusValue.bytes(Array(repeating: 0, count: 2 << 20))
        try send([.string("n"), .string(""), .uint32(0), .fields(["k": data])])
        try send([.string("n"), .string(String(repeating: "o", count: 2 << 20))])
        try stranger.send(
            try .signal(
                path: "/org/notifycenter",
                interface: "org.notifycenter.Darwin1.n",
                member: "Posted",
                arguments: [.string(String(repeating: "n", count: 2 << 20))]
            )
        )
        try send([.string("n")])
        try await eventually("the good one arrives") { observation.counts.delivered == 1 }
        #expect(center.statistics.tooLarge == 2)
        #expect(darwin.statistics.tooLarge == 1)
        #expect(center.statistics.malformed == 0 && darwin.statistics.malformed == 0)
        withExtendedLifetime(other) {}
    }

    // CF-P7, CF-B8
    @Test(
        "a post to all sessions reaches one on a session bus, and is reported once"
    )
    func allSessions() async throws {
        let observation = try await center.observe("n", delivery: .immediate) { _ in }
        let poster = try ChildProcess(ChildProcess.built("notification-probe"), environment: bus.environment)
        for _ in 0..<3 { try poster.write("post n * everywhere") }
        try await eventually("all arrive") { observation.counts.delivered == 3 }
        try poster.closeInput()
        #expect(await poster.exitStatus() == 0)
        #expect(poster.lines == ["posted", "posted", "posted"])
        try await eventually("the process is told") { !poster.errorText.isEmpty }
        #expect(poster.errorText.components(separatedBy: "reaches one session").count == 2, "once")
        #expect(poster.errorText.contains("system bus"), "the remedy")
    }

    @Test("a full standard error does not block a process that reports a failure")
    func fullStandardError() async throws {
        let poster = try ChildProcess(ChildProcess.built("notification-probe"), environment: bus.environment)
        try poster.write("choke")
        try await poster.line { $0 == "choked" }
        // The first of these posts reports that only one session gets it.
        try poster.write("post n * everywhere")
        try await poster.line(within: .seconds(60)) { $0 == "posted" }
    }

    // CF-P7, CF-B8
    @Test("on the system bus, a post to all sessions reaches all processes")
    func allSessionsOnSystemBus() async throws {
        let environment = ["NOTIFY_CENTER_BUS": "system", "DBUS_SYSTEM_BUS_ADDRESS": bus.address]
        let poster = try ChildProcess(ChildProcess.built("notification-probe"), environment: environment)
        let observation = try await center.observe("n", delivery: .immediate) { _ in }
        try poster.write("post n * everywhere")
        try await eventually("it arrives") { observation.counts.delivered == 1 }
        #expect(try await poster.line { _ in true } == "posted")
        try poster.closeInput()
        #expect(await poster.exitStatus() == 0)
        #expect(poster.errorText.isEmpty)
    }
}
