import NotifyCenterTestKit
import Synchronization
import Testing

@testable import Basics
@testable import DBus
@testable import DBusService

@Suite("Calls and registrations during a restart of the bus")
struct BusRestartTests {
    private let bus: PrivateBus
    private let connection: DBusConnection

    init() throws {
        bus = try PrivateBus()
        connection = try DBusConnection.open(bus.bus)
    }

    @Test("registering always ends across bus restarts and leaves no rule behind", .timeLimit(.minutes(5)))
    func registeringAcrossRestarts() async throws {
        let registering = (0..<3).map { thread in
            Task { [connection] in
                var round = 0
                while !Task.isCancelled {
                    round += 1
                    let rule = MatchRule(interface: "org.example.T\(thread).N\(round % 7)")
                    // It may fail while the bus is away, but it must return.
                    let lease = try? await connection.addMatch(rule)
                    withExtendedLifetime(lease) {}
                    await Task.yield()
                }
            }
        }
        for _ in 0..<8 { try bus.restart() }
        for task in registering {
            task.cancel()
            await task.value
        }
        #expect(connection.statistics.matchRules == 0)
    }

    @Test("a response to an old caller does not go to its name's owner on the new bus")
    func answerAcrossRestart() async throws {
        let server = try DBusConnection.open(bus.bus)
        let gates = Locked<[CheckedContinuation<Void, Never>]>([])
        let wait = DBusInterface.Method("Wait", out: [.init("number", "u")]) { _ in
            await withCheckedContinuation { continuation in gates.withLock { $0.append(continuation) } }
            return [.uint32(UInt32(gates.withLock { $0.count }))]
        }
        let object = try server.export([DBusInterface("org.example.Object", methods: [wait])], at: "/object")
        func ask(_ connection: DBusConnection) throws -> Task<UInt64?, Never> {
            let held = HeldMessage(try .ofObject("Wait", at: server.uniqueName))
            return Task {
                (try? await connection.call(held.message.sharedReference(), timeout: .seconds(600)))?.first?
                    .unsignedValue
            }
        }
        // On the new bus, the attempts of returning connections take the first names. These extra connections give the
        // caller a later name, which is then still free for the stranger.
        for _ in 0..<20 { try DBusConnection.open(bus.bus).close() }
        var caller: DBusConnection? = try DBusConnection.open(bus.bus)
        let callerName = try #require(caller?.uniqueName)
        let asking = try ask(try #require(caller))
        try await eventually("the call is under way") { gates.withLock { $0.count } == 1 }
        bus.stop()
        #expect(await asking.value == nil)
        caller = nil
        try bus.start()
        // The server may still have its old name, so this waits for the reconnection.
        try await eventually("the server is back") { server.statistics.reconnections > 0 }
        // Names are consecutive numbers: one of the next connections gets the caller's name.
        var others = [try DBusConnection.open(bus.bus)]
        while let name = others.last?.uniqueName, name != callerName, others.count < 60 {
            others.append(try DBusConnection.open(bus.bus))
        }
        let stranger = try #require(others.last)
        try #require(stranger.uniqueName == callerName, "otherwise this test shows nothing")
        // The stranger's first call has the same serial as the first caller's.
        let waiting = try ask(stranger)
        try await eventually("the second call is under way") { gates.withLock { $0.count } == 2 }
        gates.withLock { $0.first }?.resume()
        for _ in 0..<50 { _ = try await stranger.owner(of: callerName) }
        // The stranger would have taken a response to the first call as the response to its own call.
        let marker = Task { await waiting.value }
        gates.withLock { gates in
            // A third entry makes 3 the response to the second call. The response to the first call was 2.
            if let second = gates.last { gates.append(second) }
        }
        gates.withLock { $0[1] }.resume()
        #expect(await marker.value == 3)
        withExtendedLifetime(object) {}
    }
}
