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

    private func probe(_ environment: [String: String]) throws -> ChildProcess {
        try ChildProcess(ChildProcess.built("notification-probe"), environment: environment)
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
            try stranger.send(try .post(arguments))
        }
        try await eventually("all have arrived") { center.statistics.received + center.statistics.malformed == 2000 }
        // The reading thread counts a notification before it delivers it.
        try await eventually("all that were received are delivered") {
            observation.counts.delivered == center.statistics.received
        }
    }

    private func randomValue(depth: Int, using generator: inout SplitMix) -> DBusValue {
        let inner = depth + 1
        switch Int.random(in: 0...(depth < 4 ? 13 : 9), using: &generator) {
        case 0: return .byte(.random(in: 0...255, using: &generator))
        case 1: return .boolean(.random(using: &generator))
        case 2: return .int16(.random(in: .min ... .max, using: &generator))
        case 3: return .uint32(.random(in: .min ... .max, using: &generator))
        case 4: return .int64(.random(in: .min ... .max, using: &generator))
        case 5: return .uint64(.random(in: .min ... .max, using: &generator))
        case 6: return .double(Double(bitPattern: .random(in: .min ... .max, using: &generator)))
        case 7: return .bytes((0..<3).map { _ in .random(in: 0...255, using: &generator) })
        case 8, 9: return .string(randomText(using: &generator))
        case 10: return .variant(randomValue(depth: inner, using: &generator))
        case 11:
            let count = Int.random(in: 1...3, using: &generator)
            return .structure((0..<count).map { _ in randomValue(depth: inner, using: &generator) })
        case 12: return .array((0..<2).map { _ in .variant(randomValue(depth: inner, using: &generator)) }, of: "v")
        default:
            let (key, value) = (randomText(using: &generator), randomValue(depth: inner, using: &generator))
            return .dictionary([.init(.string(key), .variant(value))], key: "s", value: "v")
        }
    }

    private func randomText(using generator: inout SplitMix) -> String {
        ["", "n", "\\0", "é𝄞", String(repeating: "x", count: 300)].randomElement(using: &generator) ?? ""
    }

    // CF-U8, CF-U9
    @Test("an oversized notification is ignored and counted, and later ones arrive")
    func tooLargeForReceivers() async throws {
        let observation = try await center.observe("n", delivery: .immediate) { _ in }
        let darwin = DarwinNotifyCenter(bus: bus.bus)
        let other = try await darwin.observe("n", delivery: .immediate) { _ in }
        let data = DBusValue.bytes(Array(repeating: 0, count: 2 << 20))
        let text = DBusValue.string(String(repeating: "n", count: 2 << 20))
        try stranger.send(try .post([.string("n"), .string(""), .uint32(0), .fields(["k": data])]))
        try stranger.send(try .post([.string("n"), text]))
        try stranger.send(try .post([text], on: "org.notifycenter.Darwin1.n"))
        try stranger.send(try .post([.string("n")]))
        try await eventually("the good one arrives") { observation.counts.delivered == 1 }
        let counts = [center.statistics, darwin.statistics].map { [$0.tooLarge, $0.malformed] }
        #expect(counts == [[2, 0], [1, 0]])
        withExtendedLifetime(other) {}
    }

    // CF-P7, CF-B8
    @Test("a post to all sessions is reported once, unless it is on the system bus")
    func allSessions() async throws {
        let observation = try await center.observe("n", delivery: .immediate) { _ in }
        let poster = try probe(bus.environment)
        for _ in 0..<3 { try poster.write("post n * everywhere") }
        try await eventually("all arrive") { observation.counts.delivered == 3 }
        try poster.closeInput()
        #expect(await poster.exitStatus() == 0)
        #expect(poster.lines == ["posted", "posted", "posted"])
        try await eventually("the process is told") { !poster.errorText.isEmpty }
        #expect(poster.errorText.components(separatedBy: "reaches one session").count == 2, "once")
        #expect(poster.errorText.contains("system bus"), "the remedy")
        let onSystemBus = try probe(["NOTIFY_CENTER_BUS": "system", "DBUS_SYSTEM_BUS_ADDRESS": bus.address])
        try onSystemBus.write("post n * everywhere")
        try await eventually("it arrives") { observation.counts.delivered == 4 }
        #expect(try await onSystemBus.line { _ in true } == "posted")
        try onSystemBus.closeInput()
        #expect(await onSystemBus.exitStatus() == 0)
        #expect(onSystemBus.errorText.isEmpty)
    }

    @Test("a full standard error does not block a process that reports a failure")
    func fullStandardError() async throws {
        let poster = try probe(bus.environment)
        try poster.write("choke")
        try await poster.line { $0 == "choked" }
        // The first of these posts reports that only one session gets it.
        try poster.write("post n * everywhere")
        try await poster.line(within: .seconds(60)) { $0 == "posted" }
    }
}
