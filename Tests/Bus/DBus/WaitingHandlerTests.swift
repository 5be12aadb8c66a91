import NotifyCenterTestKit
import Testing

@testable import DBus

@Suite("Handlers on the reading thread, which must not wait for the bus")
struct WaitingHandlerTests {
    private let ping = MatchRule(interface: "org.example.Ping")
    private let pong = MatchRule(interface: "org.example.Pong")

    private func signal(_ interface: String) throws -> DBusMessage {
        try .signal(path: "/a", interface: interface, member: "Told")
    }

    @Test("a blocking function throws at once and names the remedy")
    func waiting() async throws {
        let bus = try PrivateBus()
        let connection = try DBusConnection.open(bus.bus)
        let errors = Noted<DBusError?>()
        @Sendable func note(_ body: () throws(DBusError) -> Void) {
            do throws(DBusError) {
                try body()
                errors.note(nil)
            } catch {
                errors.note(error)
            }
        }
        connection.perform { [connection] in
            note { () throws(DBusError) in try connection.flush(timeout: .seconds(600)) }
            note { () throws(DBusError) in _ = try connection.callAndWait(try .busCall("GetId"), timeout: .seconds(600))
            }
            note { () throws(DBusError) in _ = try connection.addMatch(MatchRule(interface: "org.example.Pong")) }
        }
        try connection.reconnectOnReadingThread()
        try await eventually("all have ended") { errors.all.count == 3 }
        #expect(errors.all.map { $0?.code } == [.wouldDeadlock, .wouldDeadlock, .wouldDeadlock])
        #expect(
            errors.all.first??.description
                == "could not call org.freedesktop.DBus.GetId: this thread reads the bus, and would wait for itself; "
                + "observe with another delivery than .immediate, or call the async form in a task"
        )
        #expect(connection.statistics.matchRules == 0)
    }

    @Test("the last of many signals arrives although a handler tried to wait")
    func flood() async throws {
        let bus = try PrivateBus()
        let (connection, poster) = (try DBusConnection.open(bus.bus), try DBusConnection.open(bus.bus))
        // This connection does not read, so it does not respond to calls.
        let silent = try DBusConnection.open(bus.bus)
        let call = try DBusMessage.methodCall(
            destination: try #require(silent.uniqueName),
            path: "/silent",
            interface: "org.example.Silent",
            member: "Wait"
        )
        let (waited, heard) = (Noted<DBusError.Code>(), Noted<Bool>())
        let handler = connection.onSignal { [connection] message in
            if message.interface == "org.example.Pong" { heard.note(true) }
            guard message.interface == "org.example.Ping", waited.all.isEmpty else { return }
            do throws(DBusError) {
                _ = try connection.callAndWait(call, timeout: .seconds(600))
            } catch {
                waited.note(error.code)
            }
        }
        let leases = [try await connection.addMatch(ping), try await connection.addMatch(pong)]
        for _ in 0..<70_000 { try poster.send(try signal("org.example.Ping")) }
        try poster.send(try signal("org.example.Pong"))
        try await eventually("the last one arrives", within: .seconds(60)) { heard.all == [true] }
        #expect(waited.all == [.wouldDeadlock])
        withExtendedLifetime((leases, handler, silent)) {}
    }

    @Test("a rule added in order is in force for what the handler sends next")
    func addingInOrder() async throws {
        let bus = try PrivateBus()
        let connection = try DBusConnection.open(bus.bus)
        let (pongs, added) = (Noted<Bool>(), Noted<MatchRuleLease>())
        let handler = connection.onSignal { [connection] message in
            if message.interface == "org.example.Pong" { pongs.note(true) }
            guard message.interface == "org.example.Ping" else { return }
            let answer = { () throws(DBusError) in
                added.note(
                    try connection.addMatchInOrder(MatchRule(interface: "org.example.Pong")) { _ in pongs.note(false) }
                )
                try connection.send(try .signal(path: "/a", interface: "org.example.Pong", member: "Told"))
            }
            try? answer()
        }
        let lease = try await connection.addMatch(ping)
        try connection.send(try signal("org.example.Ping"))
        try await eventually("it is heard") { pongs.all == [true] }
        withExtendedLifetime((lease, handler)) {}
    }

    @Test(
        "a rule that is added in order and refused later is reported and kept",
        .enabled(if: PrivateBus.Daemon.chosen == .daemon, "dbus-broker has no limit of rules for a connection")
    )
    func refusedInOrder() async throws {
        let bus = try PrivateBus(.init(matchRulesPerConnection: 1))
        let connection = try DBusConnection.open(bus.bus)
        let (failures, added) = (Noted<DBusError.Code>(), Noted<MatchRuleLease>())
        let lease = try await connection.addMatch(ping)
        connection.perform { [connection] in
            let add = { () throws(DBusError) in
                try connection.addMatchInOrder(MatchRule(interface: "org.example.Pong")) { failures.note($0.code) }
            }
            if let lease = try? add() { added.note(lease) }
        }
        try await eventually("it is refused") { failures.all == [.limitsExceeded] }
        #expect(connection.statistics.matchRules == 2)
        #expect(connection.statistics.matchRulesNotInForce == 1)
        withExtendedLifetime(lease) {}
    }

    @Test("a message's size is known without reading its arrays", arguments: [0, 1, 1000, 1_000_000])
    func size(bytes: Int) throws {
        let plain = try DBusMessage.signal(
            path: "/a",
            interface: "a.b",
            member: "C",
            arguments: [
                .string(String(repeating: "x", count: bytes)), .variant(.bytes(Array(repeating: 0, count: bytes))),
                .array(Array(repeating: .variant(.byte(1)), count: bytes), of: "v"),
            ]
        )
        // A variant of a byte takes four bytes on the wire.
        #expect((bytes * 6 - 300...bytes * 6 + 400).contains(plain.size))
    }
}
