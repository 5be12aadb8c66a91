import Dispatch
@_spi(Extensions) import NotifyCenterTestKit
import Synchronization
import Testing

@testable import Basics
@testable import DBus
@testable import DBusService

@Suite("Outages: the bus is gone, stopped, back, full, or was never there")
struct OutageTests {
    private let bus: PrivateBus
    private let connection: DBusConnection

    init() throws {
        bus = try PrivateBus()
        connection = try DBusConnection.open(bus.bus)
    }

    // MARK: Gone and back

    @Test("a process that only posts survives outages without a thread")
    func posts() async throws {
        try connection.send(try .ping())
        try bus.restart()
        try await expectPost()
        bus.stop()
        let error = #expect(throws: DBusError.self) { try connection.send(try .ping()) }
        #expect(error?.code == .disconnected)
        try bus.start()
        try await expectPost()
        #expect(!connection.core.state.withLock { $0.isReading })
        #expect(connection.statistics.reconnections == 2)
    }

    /// Sends a ping, and expects that another connection receives it.
    private func expectPost() async throws {
        let counter = try Counter(try DBusConnection.open(bus.bus))
        try connection.send(try .ping())
        try await eventually("the post arrives") { counter.arrived == 1 }
    }

    @Test("kept rules are in force once a bus appears or returns; a refused one is not kept")
    func keptRules() async throws {
        bus.stop()
        let connection = try DBusConnection.whenThere(bus.bus)
        let lost = Noted<Bool>()
        let watching = try connection.onEvent { event in if case .lost = event { lost.note(true) } }
        let absent = #expect(throws: DBusError.self) { try connection.send(try .ping()) }
        #expect(absent?.code == .noBus)
        let settled = Noted<DBusError.Code?>()
        let first = connection.keepMatch(MatchRule(interface: "org.example.Other")) { settled.note($0?.code) }
        // While the reading thread retries, posts report why there is no connection.
        #expect(throws: DBusError.self) { try connection.send(try .ping()) }
        try bus.start()
        try await eventually("the rule is in force") { connection.statistics.matchRulesNotInForce == 0 }
        #expect(connection.statistics.reconnections == 0)
        try connection.send(try .ping())
        bus.stop()
        try await eventually("the loss is told") { !lost.all.isEmpty }
        let second = connection.keepMatch(.ping) { settled.note($0?.code) }
        #expect(settled.all == [.noBus, .disconnected])
        let refused = failure { () throws(DBusError) in try connection.addMatch(.pong) }
        #expect(refused?.code == .disconnected)
        #expect(connection.statistics.matchRules == 2 && connection.statistics.matchRulesNotInForce == 2)
        try bus.start()
        try await eventually("the rules are in force") { connection.statistics.matchRulesNotInForce == 0 }
        let counter = try Counter(connection, nil)
        try DBusConnection.open(bus.bus).send(try .ping())
        try await eventually("what is posted arrives") { counter.arrived == 1 }
        withExtendedLifetime((first, second, watching)) {}
    }

    @Test("a rule requested in order is in force for what its thread sends next")
    func rulesInOrder() async throws {
        try await connection.flush()
        let arrived = Noted<String?>()
        let handler = connection.onSignal { arrived.note($0.interface) }
        let (failures, over) = (Noted<DBusError>(), Noted<Bool>())
        try await withThrowingTaskGroup(of: Void.self) { group in
            for thread in 0..<3 {
                group.addTask { [connection] in
                    let rule = MatchRule(path: "/a", interface: "org.example.Other\(thread)")
                    while over.all.isEmpty { _ = try await connection.addMatch(rule) }
                }
            }
            for number in 0..<1000 {
                let interface = "org.example.InOrder\(number)"
                let lease = try connection.addMatchInOrder(MatchRule(interface: interface)) { failures.note($0) }
                try connection.send(try .ping(interface))
                withExtendedLifetime(lease) {}
            }
            over.note(true)
            try await group.waitForAll()
        }
        try await connection.flush()
        #expect(failures.all.isEmpty)
        #expect(arrived.all.count { $0?.hasPrefix("org.example.InOrder") == true } == 1000)
        withExtendedLifetime(handler) {}
    }

    // MARK: Stopped

    @Test("registrations time out on a stopped bus, and only a kept rule remains", .ofDaemon(), .timeLimit(.minutes(5)))
    func registrationOnStoppedBus() async throws {
        connection.core.state.withLock { $0.ruleTimeout = .milliseconds(100) }
        bus.suspend()
        let settled = Noted<DBusError.Code?>()
        let lease = connection.keepMatch(.ping) { error in settled.note(error?.code) }
        try await eventually("the wait ends") { settled.all == [.timedOut] }
        let late = await #expect(throws: DBusError.self) { try await connection.addMatch(.pong) }
        #expect(late?.code == .timedOut)
        // Only the caller's deadline ends the wait.
        connection.core.state.withLock { $0.ruleTimeout = .seconds(3600) }
        let other = MatchRule(interface: "org.example.Other")
        for _ in 0..<3 {
            let error = await #expect(throws: DBusError.self) {
                try await connection.addMatch(other, timeout: .milliseconds(100))
            }
            #expect(error?.code == .timedOut)
        }
        bus.resume()
        try await eventually("the kept rule is in force, the others are given back") {
            connection.statistics.matchRules == 1 && connection.statistics.matchRulesNotInForce == 0
        }
        #expect(settled.all == [.timedOut], "told once")
        let again = try await connection.addMatch(other)
        #expect(connection.statistics.matchRulesNotInForce == 0)
        withExtendedLifetime((lease, again)) {}
    }

    @Test("on a stopped bus with a full socket, releasing rules does not wait", .ofDaemon())
    func releaseOnStoppedBus() async throws {
        var leases: [MatchRuleLease] = []
        for index in 0..<10 {
            leases.append(try await connection.addMatch(MatchRule(interface: "org.example.N\(index)")))
        }
        bus.suspend()
        while connection.core.connectedSocket?.standing.hasUnsentMessages == false {
            try connection.queue(try .ping(bytes: 100_000))
        }
        let start = ContinuousClock.now
        leases = []
        #expect(ContinuousClock.now - start < .seconds(20), "each would have waited 30 s")
        #expect(connection.statistics.matchRules == 0)
        bus.resume()
    }

    @Test("a blocking call times out even if a handler blocks the reading thread")
    func callBesideBlockedHandler() async throws {
        let (entered, goOn) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
        let handler = connection.onSignal { message in
            guard message.interface == "org.example.Ping" else { return }
            entered.signal()
            goOn.wait()
        }
        let lease = try await connection.addMatch(.ping)
        try connection.send(try .ping())
        let error = await onThread { [connection] in
            entered.wait()
            return failure { () throws(DBusError) in try connection.flush(timeout: .milliseconds(100)) }
        }
        #expect(error?.code == .timedOut)
        goOn.signal()
        withExtendedLifetime((lease, handler)) {}
    }

    @Test("a message that is being sent when the connection is closed is delivered", .ofDaemon())
    func closeDuringSend() async throws {
        let counter = try Counter(try DBusConnection.open(bus.bus))
        // A connection with a rule reads, so its reading thread notices the end of the connection.
        _ = try await connection.addMatch(.pong)
        bus.suspend()
        let sent = Locked(0)
        let sender = Task {
            await onThread { [connection] in
                while true {
                    let error = failure { () throws(DBusError) in try connection.send(try .ping(bytes: 100_000)) }
                    if let error { return error.code }
                    sent.withLock { $0 += 1 }
                }
            }
        }
        // Blocked: the kernel accepts no further data.
        try await eventually("the sender waits for the bus") {
            connection.core.connectedSocket?.standing.hasUnsentMessages == true
        }
        connection.close()
        bus.resume()
        #expect(await sender.value == .closed)
        let told = sent.withLock { $0 }
        try await eventually("every message that was reported as sent arrives") { counter.arrived >= told }
        #expect(told > 0)
    }

    @Test("the response to a call never waits for the bus", .ofDaemon())
    func answersDoNotWait() async throws {
        let replies = Locked<[CallReply]>([])
        let method = DBusInterface.Method(
            "Get",
            out: [.init("bytes", "ay")],
            inOrder: { _, reply in replies.withLock { $0.append(reply) } }
        )
        let object = try connection.export([DBusInterface("org.example.Object", methods: [method])], at: "/object")
        let client = try DBusConnection.open(bus.bus)
        let answers = Locked(0)
        for _ in 0..<32 {
            client.call(try .ofObject("Get", at: connection.uniqueName), timeout: .seconds(120)) { result in
                if case .success = result { answers.withLock { $0 += 1 } }
            }
        }
        try await eventually("all calls are there") { replies.withLock { $0.count } == 32 }
        bus.suspend()
        let start = ContinuousClock.now
        for reply in replies.withLock({ $0 }) { reply.send(.success([.bytes(Array(repeating: 1, count: 1_000_000))])) }
        #expect(ContinuousClock.now - start < .seconds(20), "each would have waited 30 s")
        bus.resume()
        try await eventually("all responses arrive") { answers.withLock { $0 } == 32 }
        withExtendedLifetime(object) {}
    }
}

extension OutageTests {
    @Suite("The bus's limit of match rules") struct RuleLimitTests {
        private func connect(_ limit: Int) throws -> (bus: PrivateBus, connection: DBusConnection) {
            let bus = try PrivateBus(.init(matchRulesPerConnection: limit))
            return (bus, try DBusConnection.open(bus.bus))
        }

        @Test(
            "a rule that is added in order and refused later is reported and kept",
            .ofDaemon("dbus-broker has no limit of rules for a connection")
        )
        func refusedInOrder() async throws {
            let (bus, connection) = try connect(1)
            let (failures, added) = (Noted<DBusError.Code>(), Noted<MatchRuleLease>())
            let lease = try await connection.addMatch(.ping)
            connection.perform {
                let add = { () throws(DBusError) in try connection.addMatchInOrder(.pong) { failures.note($0.code) } }
                if let lease = try? add() { added.note(lease) }
            }
            try await eventually("the rule is refused") { failures.all == [.limitsExceeded] }
            #expect(connection.statistics.matchRules == 2)
            #expect(connection.statistics.matchRulesNotInForce == 1)
            withExtendedLifetime((bus, lease)) {}
        }

        @Test("threads that hit the rule limit together are all covered by the broad rule")
        func limitRace() async throws {
            for _ in 0..<10 {
                let (bus, connection) = try connect(100)
                let leases = try await withThrowingTaskGroup(of: [MatchRuleLease].self) { group in
                    for thread in 0..<8 {
                        group.addTask { try await addMatches(40, "T\(thread).N", on: connection) }
                    }
                    return try await group.reduce([], +)
                }
                #expect(leases.count == 320)
                #expect(connection.statistics.matchRulesNotInForce == 0)
                withExtendedLifetime(bus) {}
            }
        }

        /// Adds rules of `/a`, for which a rule of all signals of `/a` can stand in.
        private func addMatches(
            _ count: Int,
            _ name: String,
            on connection: DBusConnection
        ) async throws -> [MatchRuleLease] {
            var leases: [MatchRuleLease] = []
            for index in 0..<count {
                let rule = MatchRule(path: "/a", interface: "org.example.\(name)\(index)")
                leases.append(try await connection.addMatch(rule, fallback: MatchRule(path: "/a")))
            }
            return leases
        }

        @Test("a connection whose rules become few again receives only what it asked for")
        func fewerRules() async throws {
            let (bus, connection) = try connect(20)
            // The counter adds no rule, so it counts pings that the connection did not ask for.
            let others = try Counter(connection, nil)
            var leases = try await addMatches(40, "N", on: connection)
            leases.removeLast(36)
            try await eventually("the broad rule is given back") {
                let before = others.arrived
                try? connection.send(try .ping())
                await onThread { try? connection.flush() }
                return others.arrived == before
            }
            #expect(connection.statistics.coveredMatchRules == 0 && connection.statistics.matchRulesNotInForce == 0)
            withExtendedLifetime((bus, leases)) {}
        }
    }
}

@Suite("The bus names that a connection owns")
struct OwnedNamesTests {
    @Test("a released name is not owned, whatever was asked of the bus first")
    func releaseDuringRestoration() throws {
        let name = "org.example.Name"
        var names = OwnedNames()
        let first = names.request(name, [])
        var isToldAgain = names.answered(first, isOwned: true)
        #expect(!isToldAgain && names.owned.keys.contains(name))
        // Released after a restoration has decided to request it, and before its message.
        let restored = try #require(names.requestAll().first)
        names.release(name)
        isToldAgain = names.answered(restored, isOwned: true)
        #expect(isToldAgain && names.owned.isEmpty, "the bus is told once more")
        // Requested again before the response: the last request decides, whichever response comes first.
        let second = names.request(name, [])
        var again = names.requestAgain(name)
        #expect(again == nil, "the name has no owner")
        isToldAgain = names.answered(second, isOwned: true)
        again = names.requestAgain(name)
        #expect(!isToldAgain && again != nil)
        let third = names.request(name, [])
        names.release(name)
        let fourth = names.request(name, [])
        isToldAgain = names.answered(third, isOwned: true)
        #expect(!isToldAgain && names.owned.isEmpty)
        isToldAgain = names.answered(fourth, isOwned: true)
        #expect(!isToldAgain && names.owned.count == 1)
        // A name that the bus refuses is requested again after the next outage.
        let refused = try #require(names.requestAll().first)
        isToldAgain = names.answered(refused, isOwned: false)
        #expect(!isToldAgain && names.owned.count == 1)
    }
}
