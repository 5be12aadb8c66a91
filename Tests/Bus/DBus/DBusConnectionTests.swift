import Foundation
@_spi(Extensions) import NotifyCenterTestKit
import Synchronization
import Testing

@testable import Basics
@testable import DBus
@testable import DBusService

@Suite("A connection over a real bus")
struct DBusConnectionTests {
    private let served: ServedBus
    private var bus: PrivateBus { served.bus }
    private var connection: DBusConnection { served.client }

    init() throws {
        served = try ServedBus()
        let methods: [DBusInterface.Method] = [
            .init("Echo", in: [.init("text", "s")], out: [.init("text", "s")]) { $0.arguments },
            .init("Hang") { _ in
                try await Task.sleep(for: .seconds(600))
                return []
            },
            .init("Fail") { _ in throw MethodFailure(name: "org.example.Error.Busy", message: "later") },
            .init(
                "FailLater",
                inOrder: { _, reply in Task { reply.send(.failure(.init(name: "org.example.Error.No", message: ""))) } }
            ),
            .init("Huge", out: [.init("bytes", "ay")]) { _ in
                [.bytes(Array(repeating: 0, count: DBusValueLimits.bodyBytes + 1))]
            },
        ]
        try served.serve(methods, properties: [.init("Version", "u") { .uint32(7) }])
    }

    @Test("errors carry the peer's name and differ for signature, object and method")
    func refusals() async throws {
        func refusal(_ member: String, _ arguments: [DBusValue] = []) async throws -> String? {
            await connection.refusal(of: try served.call(member, arguments))?.name
        }
        #expect(try await refusal("Fail") == "org.example.Error.Busy")
        #expect(try await refusal("FailLater") == "org.example.Error.No")
        #expect(try await refusal("Echo", [.uint32(1)]) == "org.freedesktop.DBus.Error.InvalidArgs")
        #expect(try await refusal("FailLater", [.uint32(1)]) == "org.freedesktop.DBus.Error.InvalidArgs")
        #expect(try await refusal("Nothing") == "org.freedesktop.DBus.Error.UnknownMethod")
        #expect(try await refusal("Huge") == "org.freedesktop.DBus.Error.Failed")
        let name = try #require(served.server.uniqueName)
        #expect(await connection.refusal(of: try .ofObject("Echo", at: ":1.99999"))?.code == .refused)
        let elsewhere = try DBusMessage.methodCall(destination: name, path: "/no", interface: "a.b", member: "C")
        #expect(await connection.refusal(of: elsewhere)?.name == "org.freedesktop.DBus.Error.UnknownObject")
    }

    @Test("an unanswered call times out, and a cancelled call ends at once")
    func timeoutAndCancellation() async throws {
        let late = await #expect(throws: DBusError.self) {
            try await connection.call(try served.call("Hang"), timeout: .milliseconds(20))
        }
        #expect(late?.code == .timedOut)
        let held = HeldMessage(try served.call("Hang"))
        let task = Task { [connection] in await connection.refusal(of: held.message.sharedReference())?.code }
        task.cancel()
        #expect(await task.value == .cancelled)
    }

    @Test("standard tools can introspect a service and ping a program without objects")
    func introspection() async throws {
        let (server, client) = (try #require(served.server.uniqueName), try #require(connection.uniqueName))
        func send(to name: String, _ path: String, _ member: String, _ arguments: String...) throws -> ChildProcess {
            let call = ["--dest=\(name)", path, "org.freedesktop.DBus.\(member)"] + arguments
            let words = ["--session", "--print-reply=literal"] + call
            return try ChildProcess("dbus-send", words, environment: bus.environment)
        }
        let object = try send(to: server, "/object", "Introspectable.Introspect")
        try await object.line { $0.contains("<method name=\"Echo\">") }
        #expect(object.lines.contains { $0.contains("<property name=\"Version\" type=\"u\" access=\"read\">") })
        try await send(to: server, "/", "Introspectable.Introspect").line { $0.contains("<node name=\"object\"/>") }
        try await send(to: server, "/object", "Properties.Get", "string:org.example.Object", "string:Version")
            .line { $0.contains("uint32 7") }
        // From its first call on, a connection reads.
        #expect(await connection.refusal(of: try served.call("Fail"))?.code == .refused)
        #expect(try await send(to: client, "/", "Peer.Ping").exitStatus() == 0)
        let refused = try send(to: client, "/", "Introspectable.Introspect")
        #expect(await refused.exitStatus() == 1)
        #expect(refused.errorText.contains("UnknownObject: this program serves no objects"), "\(refused.errorText)")
    }

    @Test("the bus reports the user, process, program and end of a peer")
    func credentials() async throws {
        let peer = try DBusConnection.open(bus.bus)
        let credentials = try await connection.credentials(of: try #require(peer.uniqueName))
        #expect(credentials.userID == getuid())
        #expect(credentials.groupIDs.contains(getegid()))
        #expect(credentials.processID == UInt32(getpid()))
        let executable = try #require(credentials.executable)
        #expect(executable == ChildProcess.built((executable as NSString).lastPathComponent))
        peer.close()
        try await eventually("a peer that is gone has none") {
            do throws(DBusError) {
                _ = try await connection.credentials(of: peer.uniqueName ?? ":1.99999")
                return false
            } catch {
                return error.code == .refused
            }
        }
        // A pipe end becomes readable when the other end is closed, as a process descriptor does when the process ends.
        var ends: [CInt] = [-1, -1]
        try #require(pipe(&ends) == 0)
        let fields: [String: DBusValue] = [
            "UnixUserID": .uint32(7), "ProcessID": .uint32(8),
            "ProcessFD": .descriptor(DBusDescriptor(adopting: ends[0])),
            "LinuxSecurityLabel": .bytes(Array("snap.a.b (enforce)\0".utf8)), "OfTomorrow": .double(1),
        ]
        let described = try DBusConnection.PeerCredentials(of: ":1.1", answer: [.fields(fields)])
        #expect(described.userID == 7 && described.processID == 8 && described.securityLabel == "snap.a.b (enforce)")
        #expect(described.isRunning == true)
        close(ends[1])
        // A process that another test is starting may briefly hold a copy.
        try await eventually("it has ended") { described.isRunning == false }
        let older = fields.filter { $0.key != "ProcessFD" }
        #expect(try DBusConnection.PeerCredentials(of: ":1.1", answer: [.fields(older)]).isRunning == nil)
    }

    @Test("a name of another owner is refused until the owner is gone or releases it")
    func names() async throws {
        var other: DBusConnection? = try DBusConnection.open(bus.bus)
        try await other?.requestName("org.example.One")
        let taken = await #expect(throws: DBusError.self) { try await connection.requestName("org.example.One") }
        #expect(taken?.code == .nameTaken)
        #expect(try await connection.owner(of: "org.example.One") == other?.uniqueName)
        other = nil
        try await eventually("the name is free") { try await connection.owner(of: "org.example.One") == nil }
        try await connection.requestName("org.example.One")
        #expect(try await connection.owner(of: "org.example.One") == connection.uniqueName)
        try await connection.releaseName("org.example.One")
        #expect(try await connection.owner(of: "org.example.One") == nil)
    }

    @Test("connection, names, rules and objects are restored after the bus restarts")
    func reconnection() async throws {
        let server = served.server
        try await server.requestName("org.example.Echo")
        let counter = try Counter(server)
        let events = Locked<[String]>([])
        let watching = try server.onEvent { event in
            events.withLock { events in
                switch event {
                case .lost: events.append("lost")
                case .restored(let failures): events.append("restored with \(failures.count) failures")
                }
            }
        }
        bus.stop()
        try await eventually("the loss is told") { events.withLock { $0 } == ["lost"] }
        let lost = #expect(throws: DBusError.self) { try server.send(try .ping()) }
        #expect(lost?.code == .disconnected)
        try bus.start()
        try await eventually("the return is told") { events.withLock { $0 } == ["lost", "restored with 0 failures"] }
        let client = try DBusConnection.open(bus.bus)
        let answer = try await client.call(.ofObject("Echo", [.string("again")], at: "org.example.Echo"))
        #expect(answer == [.string("again")])
        try client.send(try .ping())
        try await eventually("the signal arrives by the restored rule") { counter.arrived == 1 }
        withExtendedLifetime(watching) {}
    }

    @Test("several threads may send one message as a call")
    func sharedMessage() async throws {
        let held = HeldMessage(try .busCall("GetId"))
        let answers = await withTaskGroup { group in
            for _ in 0..<20 {
                group.addTask { [connection] in (try? connection.callAndWait(held.message.copy()))?.count ?? 0 }
            }
            return await group.reduce(0, +)
        }
        #expect(answers == 20)
    }

    // xdg-dbus-proxy hangs up otherwise.
    @Test("messages of several threads leave in the order of their serials")
    func serials() async throws {
        let serials = Noted<UInt32>()
        let observation = served.server.onSignal { if $0.interface == "org.example.Ping" { serials.note($0.serial) } }
        let lease: MatchRuleLease = try await served.server.addMatch(MatchRule(interface: "org.example.Ping"))
        await withTaskGroup { group in
            for number in 0..<4 {
                group.addTask {
                    for _ in 0..<500 {
                        #expect(throws: Never.self) {
                            // A signal sent as a call passes where calls pass, and the receiver sees its serial.
                            number.isMultiple(of: 2)
                                ? try connection.send(.ping())
                                : connection.core.startCall(PendingCall(try .ping(), deadline: nil) { _ in })
                        }
                    }
                }
            }
        }
        try await connection.flush()
        try await served.server.flush()
        let heard = serials.all
        #expect(heard.count == 2000)
        #expect(zip(heard, heard.dropFirst()).allSatisfy { $0 < $1 })
        withExtendedLifetime((observation, lease)) {}
    }

    @Test("a handler that holds the last reference to its own connection can be removed")
    func handlerHoldsConnection() throws {
        func tokens() throws -> [Observation] {
            let connection = try DBusConnection.open(bus.bus)
            return [
                try connection.onEvent { _ in withExtendedLifetime(connection) {} },
                connection.onSignal { _ in withExtendedLifetime(connection) {} },
            ]
        }
        // The deinit of the last token ends the connection, while the token's lock may be held.
        for token in try tokens() { token.cancel() }
    }

    @Test("without a bus the error says where it looked and what to do")
    func noBus() {
        let error = #expect(throws: DBusError.self) { try DBusConnection.open(.address("unix:path=/nowhere/bus")) }
        #expect(error?.code == .noBus)
        #expect(error?.description.contains("/nowhere/bus") == true)
        #expect(error?.remedy != nil)
    }
}
