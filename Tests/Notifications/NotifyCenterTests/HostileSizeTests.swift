import Foundation
import NotifyCenterTestKit
import Testing

@testable import DBusTransport
@testable import NotifyCenter

/// One large signal that anybody on the bus may send.
private enum LargeSignal: String, CaseIterable, CustomTestStringConvertible {
    case arrayOfAMillionNumbers, dictionaryOfManyEntries, data, object, name, bodyBehindADarwinName

    var testDescription: String { rawValue }

    private var kind: WireKind { self == .bodyBehindADarwinName ? .darwin : .distributed }

    private var arguments: [DBusValue] {
        let megabytes = 1 << 20
        switch self {
        case .arrayOfAMillionNumbers:
            let numbers = [DBusValue](repeating: .variant(.int64(1)), count: megabytes)
            return [.string("n"), .string(""), .uint32(0), .fields(["k": .array(numbers, of: "v")])]
        case .dictionaryOfManyEntries:
            let entries = (0..<300_000).map { DBusValue.DictionaryEntry(.string("\($0)"), .variant(.int64(1))) }
            return [.string("n"), .string(""), .uint32(0), .dictionary(entries, key: "s", value: "v")]
        case .data:
            return [
                .string("n"), .string(""), .uint32(0),
                .fields(["k": .bytes(Array(repeating: 1, count: 15 * megabytes))]),
            ]
        case .object: return [.string("n"), .string(String(repeating: "x", count: 15 * megabytes))]
        case .name: return [.string(String(repeating: "x", count: 15 * megabytes))]
        case .bodyBehindADarwinName:
            return [.string("n"), .array(Array(repeating: .variant(.int64(1)), count: megabytes), of: "v")]
        }
    }

    /// - Parameter member: `Posted` for a notification; any other arrives too, and is ignored at once.
    func message(member: String) throws -> DBusMessage {
        try DBusMessage.signal(
            path: "/org/notifycenter",
            interface: "\(kind.prefix).n",
            member: member,
            arguments: arguments
        )
    }
}

@Suite("Large signals of others", .timeLimit(.minutes(5)))
struct HostileSizeTests {
    private let bus: PrivateBus
    private let listener: ChildProcess

    init() throws {
        bus = try PrivateBus()
        listener = try ChildProcess(ChildProcess.built("center-probe"), environment: bus.environment)
    }

    private func tell(_ command: String, answer: (String) -> Bool) async throws -> String {
        let before = listener.lines.count
        try listener.write(command)
        var line: String?
        try await eventually("an answer to \(command)") {
            line = listener.lines.dropFirst(before).first(where: answer)
            return line != nil
        }
        return try #require(line)
    }

    private func peakResidentKiB() async throws -> Int {
        let line = try await tell("memory") { $0.hasPrefix("memory ") }
        return try #require(Int(line.dropFirst("memory ".count)))
    }

    /// Sends the message from a connection of its own, and waits until the listener has read it.
    private func send(_ message: borrowing DBusMessage, thenMark mark: String) async throws {
        let stranger = try DBusConnection.open(bus.bus)
        try stranger.send(message)
        try DistributedNotifyCenter(connection: stranger).post("n", object: mark)
        try await eventually("\(mark) is heard") { listener.lines.contains("deliverImmediately n \(mark)") }
    }

    // CF-U8, CF-U9
    @Test(
        "a signal of 16 MiB costs a listener at most 1 MiB beyond the message itself",
        arguments: LargeSignal.allCases
    )
    private func memory(signal: LargeSignal) async throws {
        _ = try await tell("observe deliverImmediately deliverImmediately n *") { $0.hasPrefix("observing ") }
        _ = try await tell("hear n") { $0 == "hearing" }
        var usual = 0
        for round in 0..<3 {
            try await send(try signal.message(member: "Other"), thenMark: "other\(round)")
            usual = max(usual, try await peakResidentKiB())
        }
        for round in 0..<2 {
            try await send(try signal.message(member: "Posted"), thenMark: "posted\(round)")
            let peak = try await peakResidentKiB()
            #expect(peak <= usual + 1024, "\(peak) KiB, and \(usual) KiB where it is ignored at once")
        }
    }
}
