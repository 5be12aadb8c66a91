import Basics
import DBus
import DBusService
import Dispatch
import Fleet
import FleetStage
import Glibc
import MQTTClient
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import Synchronization
import Testing
import shared_device_agent

@testable import shared_device_controller

/// Runs agent and controller in this process, so that a test can make two events coincide.
@Suite("A fleet's services between two events")
struct FleetServicesTests {
    /// A controller without a server.
    private static func controller(in directory: TemporaryDirectory, on bus: PrivateBus) throws -> ControllerService {
        let text = """
            {"fleet": "clinic", "name": "controller", "host": "mqtt", "authority": "/a", "certificate": "/c", "key": "/k"}
            """
        let configuration = try FleetConfiguration(parsing: Array(text.utf8))
        return try ControllerService(
            .success(configuration),
            stateDirectory: directory.path,
            bus: bus.bus,
            checksKey: false
        ) { _ in }
    }

    @Test("requests that only count devices get no names, and other requests do")
    func countsWithoutNames() async throws {
        let (directory, bus) = (try TemporaryDirectory("controller"), try PrivateBus())
        let controller = try Self.controller(in: directory, on: bus)
        try await controller.change { state throws(FleetRefusal) in (try state.list(["a", "b"], groups: []), ()) }
        try await controller.change { state throws(FleetRefusal) in
            (try state.order(.devices(["a", "b"]), session: nil, reason: "x", now: 0), ())
        }
        let answers = ControllerAnswers(service: controller)
        for (request, names) in [([:], ["a", "b"]), (["names": .boolean(false)], nil)]
            as [([String: DBusValue], [String]?)]
        {
            let orders = await answers.orders(request)["orders"]?.elementsValue ?? []
            let order = orders.first?.fieldsValue ?? [:]
            #expect(orders.count == 1 && order["count"]?.unsignedValue == 2)
            #expect(order["devices"]?.stringsValue == names)
            let progress = try await answers.order(request)
            #expect(progress["total"]?.unsignedValue == 2 && progress["count"]?.unsignedValue == 2)
            #expect(progress["devices"]?.stringsValue == names)
        }
    }

    @Test("FL-11: messages that arrive during a write are counted with unique revisions")
    func foreignMeanwhile() async throws {
        let (directory, bus) = (try TemporaryDirectory("controller"), try PrivateBus())
        let controller = try Self.controller(in: directory, on: bus)
        let loud = MQTTMessage(topic: "sd/1/clinic/dev/a/reported", payload: Array("{".utf8))
        let foreign = MQTTMessage(topic: "sd/1/clinic/dev/a/other", payload: [])
        await onThread { for _ in 0..<ReportLimiter.most { controller.take(.message(loud)) } }
        func numbers() -> [UInt64] { controller.read { state, _ in [state.foreignCount, state.revision] } }
        let before = numbers()
        let taken = DispatchSemaphore(value: 0)
        try await controller.change { state throws(FleetRefusal) in
            let record = try state.list(["a"], groups: [])
            for message in [foreign, loud] {
                _ = QuietThread.start("message") {
                    controller.take(.message(message))
                    taken.signal()
                }
            }
            // If they have to wait for this change, they are handled after it, however long it takes.
            for _ in 0..<2 { _ = taken.wait(timeout: .now() + .milliseconds(500)) }
            return (record, ())
        }
        try await eventually("both are handled") { numbers() == [before[0] + 2, before[1] + 3] }
        #expect(controller.read { state, _ in state.names } == ["a"])
    }

    @Test("FL-5: an agent repeats a request whose response came too late")
    func lateAnswer() async throws {
        let stage = try await FleetStage(enrolling: ["ward-1", "auditor"])
        let auditor = try await stage.connected("auditor", to: ["sd/1/clinic/dev/+/reported"])
        let controller = try await stage.connected("controller")
        let broker = try await StandInBroker(on: stage.bus.bus)
        let configuration = try FleetFiles.configuration(stage.path("ward-1.json"))
        let agent = try AgentService(
            .success(configuration),
            stateDirectory: stage.path("ward-1-state"),
            bus: stage.bus.bus,
            checksKey: false
        ) { _ in }
        try await agent.start()
        // The agent follows the broker: its request stays open until the state changes.
        try await eventually("the agent waits") { broker.questions == [nil, 1] }

        // The state asks with a separate request and gets the response: no session is open.
        try controller.publish(.fleet(.allDesired, .desired(FleetOrder(number: 5, reason: "x"))))
        try await eventually("the order is done") { auditor.reports.contains { $0.seen.all == 5 } }
        #expect(broker.questions == [nil, 1, nil])

        // Only now the first request gets its response. It was sent before the state asked.
        broker.signIn(session: 9)
        try await eventually("the agent asks again") { broker.questions.count > 3 }
        #expect(broker.questions[3] == nil, "it asks for what is so, and does not wait for the next change")
        try await eventually("the session is reported") { auditor.reports.contains { $0.session == 9 } }
        await agent.stop()
        withExtendedLifetime((auditor, controller)) {}
    }
}

/// A substitute for the broker: a device on which a user signs in when the test says so.
private final class StandInBroker: Sendable {
    private struct State {
        var revision: UInt64 = 1
        var session: UInt64?
        var questions: [UInt64?] = []
    }

    private let state = Locked(State())
    private let connection: DBusConnection
    private let object = Locked<Observation?>(nil)

    /// The revision in each request; `nil` in a request for an immediate response.
    var questions: [UInt64?] { state.withLock { $0.questions } }

    init(on bus: Bus) async throws {
        connection = try DBusConnection.open(bus)
        let method = DBusInterface.Method(
            BrokerProtocol.Method.getStatus.rawValue,
            in: [.init("request", "a{sv}")],
            out: [.init("answer", "a{sv}")]
        ) { [weak self] call in
            let known = call.arguments.first?.fieldsValue?["revision"]?.unsignedValue
            self?.state.withLock { $0.questions.append(known) }
            // Holds the request like the broker, but without a time limit.
            while let self, known == self.state.withLock({ $0.revision }) {
                try await Task.sleep(for: .milliseconds(5))
            }
            let state = self?.state.withLock { $0 } ?? State()
            var answer: [String: DBusValue] = [
                "revision": .uint64(state.revision), "mode": .string("shared"), "epoch": .uint64(state.session ?? 8),
            ]
            if state.session != nil { answer["account"] = .string("ada") }
            return [.fields(answer)]
        }
        let interface = DBusInterface(BrokerProtocol.interface, methods: [method])
        let token = try connection.export([interface], at: BrokerProtocol.path)
        object.withLock { $0 = token }
        _ = try await connection.requestName(BrokerProtocol.busName)
    }

    func signIn(session: UInt64) { state.withLock { ($0.session, $0.revision) = (session, 2) } }
}
