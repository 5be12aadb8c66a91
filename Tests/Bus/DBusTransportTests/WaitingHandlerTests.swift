import NotifyCenterTestKit
import Synchronization
import Testing

@testable import DBusTransport

@Suite("A handler that waits for the bus on the reading thread")
struct WaitingHandlerTests {
    private let rule = MatchRule(interface: "org.example.Ping")

    private func ping() throws -> DBusMessage {
        try .signal(path: "/a", interface: "org.example.Ping", member: "Ping")
    }

    @Test("what arrives while a handler waits is bounded, in count and in bytes")
    func deferredMessages() throws {
        var deferred = DeferredMessages()
        func isKept(_ bytes: Int) throws -> Bool { deferred.append(HeldMessage(try ping()), bytes: bytes) }
        let areKept = try (0..<DeferredMessages.countLimit).map { try isKept($0 % 2) }
        #expect(!areKept.contains(false))
        #expect(try !isKept(0))
        deferred.removeAll()
        let size = DeferredMessages.byteLimit / 4
        for _ in 0..<4 { #expect(try isKept(size)) }
        #expect(try !isKept(1))
        for _ in 0..<4 { #expect(deferred.popFirst() != nil) }
        #expect(deferred.popFirst() == nil)
        #expect(try isKept(size), "there is room again")
        deferred.busLost()
        #expect(deferred.isEmpty)
        // While there is always one that waits, what was taken makes room, and is freed.
        #expect(try isKept(size))
        weak var taken: HeldMessage?
        for _ in 0..<9 {
            #expect(try isKept(size), "there is room for a second one")
            taken = deferred.popFirst()
            #expect(taken == nil, "it is freed")
        }
        #expect(!deferred.isEmpty)
    }

    @Test("signals that wait for the end of a handler when the bus is lost are counted")
    func deferredInAnOutage() async throws {
        let bus = try PrivateBus()
        let connection = try DBusConnection.open(bus.bus)
        let poster = try DBusConnection.open(bus.bus)
        let silent = try DBusConnection.open(bus.bus)
        let ended = Locked(false)
        let object = try silent.export(
            [
                DBusInterface(
                    "org.example.Silent",
                    methods: [
                        .init("Wait") { _ in
                            try await Task.sleep(for: .seconds(600))
                            return []
                        }
                    ]
                )
            ],
            at: "/silent"
        )
        let name = try #require(silent.uniqueName)
        let handler = connection.onSignal { [connection] message in
            guard message.interface == "org.example.Ping" else { return }
            let wait = { () throws(DBusError) in
                _ = try connection.callAndWait(
                    .methodCall(destination: name, path: "/silent", interface: "org.example.Silent", member: "Wait"),
                    timeout: .seconds(600)
                )
            }
            try? wait()
            ended.withLock { $0 = true }
        }
        let lease = try await connection.addMatch(rule)
        for _ in 0..<4 { try poster.send(try ping()) }
        try await eventually("three wait") { connection.core.state.withLock { $0.deferred.count } == 3 }
        bus.stop()
        try await eventually("the handler goes on") { ended.withLock { $0 } }
        #expect(connection.statistics.lostInOutages == 3)
        #expect(connection.statistics.overflowed == 0)
        withExtendedLifetime((lease, handler, object)) {}
    }

    @Test("a flush ends when the handlers have seen what came before, though one of them waits for the bus")
    func flushBesideWaitingHandler() async throws {
        let bus = try PrivateBus()
        let connection = try DBusConnection.open(bus.bus)
        let server = try DBusConnection.open(bus.bus)
        let replies = Locked<[CallReply]>([])
        let object = try server.export(
            [
                DBusInterface(
                    "org.example.Slow",
                    methods: [.init("Wait", inOrder: { _, reply in replies.withLock { $0.append(reply) } })]
                )
            ],
            at: "/slow"
        )
        let name = try #require(server.uniqueName)
        let seen = Noted<Bool>()
        let handler = connection.onSignal { [connection] message in
            guard message.interface == "org.example.Ping" else { return }
            seen.note(true)
            guard seen.all.count == 1 else { return }
            let wait = { () throws(DBusError) in
                // Allowed here, where it waits for no handler.
                try connection.flush()
                _ = try connection.callAndWait(
                    .methodCall(destination: name, path: "/slow", interface: "org.example.Slow", member: "Wait"),
                    timeout: .seconds(600)
                )
            }
            try? wait()
        }
        let lease = try await connection.addMatch(rule)
        try connection.send(try ping())
        try await eventually("the handler waits") { replies.withLock { $0.count } == 1 }
        try connection.send(try ping())
        /// How many pings the handler had seen when each flush ended.
        let flushed = Noted<Int>()
        let inTask = Task {
            try await connection.flush()
            flushed.note(seen.all.count)
        }
        let onOwnThread = Task {
            await onThread {
                let flush = { () throws(DBusError) in try connection.flush() }
                if (try? flush()) != nil { flushed.note(seen.all.count) }
            }
        }
        // The second ping and both answers.
        try await eventually("the answers are there") {
            connection.core.state.withLock { $0.deferred.count } == 3 || flushed.all.count == 2
        }
        #expect(flushed.all == [])
        for reply in replies.withLock({ $0 }) { reply.send(.success([])) }
        try await inTask.value
        await onOwnThread.value
        #expect(flushed.all == [2, 2])
        withExtendedLifetime((lease, handler, object)) {}
    }

    @Test(
        "a handler that registers while the bus stands still waits no longer than it wants",
        .enabled(if: PrivateBus.Daemon.chosen == .daemon),
        .timeLimit(.minutes(5))
    )
    func shortRegistration() async throws {
        let bus = try PrivateBus()
        let connection = try DBusConnection.open(bus.bus)
        // Nothing but the handler's time ends the wait.
        connection.core.state.withLock { $0.ruleTimeout = .seconds(3600) }
        let codes = Noted<DBusError.Code>()
        let handler = connection.onSignal { [connection] message in
            guard message.interface == "org.example.Ping" else { return }
            bus.suspend()
            do throws(DBusError) {
                _ = try connection.addMatch(MatchRule(interface: "org.example.Pong"), timeout: .milliseconds(100))
            } catch {
                codes.note(error.code)
            }
        }
        let lease = try await connection.addMatch(rule)
        try connection.send(try ping())
        try await eventually("the wait ends") { codes.all == [.timedOut] }
        bus.resume()
        try await eventually("the rule is given back") { connection.statistics.matchRules == 1 }
        withExtendedLifetime((lease, handler)) {}
    }

    @Test("a message's size is told without reading its arrays", arguments: [0, 1, 1000, 1_000_000])
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
