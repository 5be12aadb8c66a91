import DBus
import DBusService
import Foundation
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import Synchronization
import Testing

@Suite("shared-device-screen in real sessions", .enabled(if: Sessions.hasSway, "sway or wtype is not installed"))
struct ScreenSessionTests {
    /// A stand-in for the broker, which shows what a test wants.
    private final class StandInBroker: Sendable {
        struct State {
            var answer = ScreenAnswer(revision: 1, show: .nothing)
            var shows: [String] = []
            var signIns: [[String: String]] = []
            var reports = 0
            var refusal: String?
            /// The code of the refusal of each request for what to show.
            var screenRefusal: String?
        }

        private final class Shared: Sendable { let state = Mutex(State()) }

        private let shared = Shared()
        private let connection: DBusConnection
        private let object: Observation

        init(_ bus: PrivateBus) async throws {
            connection = try DBusConnection.open(bus.bus)
            let shared = shared
            let (request, response) = (
                DBusInterface.Argument("request", "a{sv}"), DBusInterface.Argument("response", "a{sv}")
            )
            let screen = DBusInterface.Method("GetScreen", in: [request], out: [response]) {
                let fields = $0.arguments.first?.fieldsValue ?? [:]
                return try shared.state.withLock { state in
                    if let code = state.screenRefusal {
                        throw MethodFailure(name: BrokerProtocol.errorPrefix + code, message: "not this one")
                    }
                    state.shows.append(fields["shows"]?.stringValue ?? "")
                    return [.fields(state.answer.fields)]
                }
            }
            let signIn = DBusInterface.Method("SignIn", in: [request], out: [response]) {
                let fields = $0.arguments.first?.fieldsValue ?? [:]
                try shared.state.withLock { state in
                    state.signIns.append(fields.compactMapValues(\.stringValue))
                    if let refusal = state.refusal {
                        throw MethodFailure(name: BrokerProtocol.errorPrefix + refusal, message: "no")
                    }
                    state.answer.show = .nothing
                    state.answer.revision += 1
                }
                return [.fields(["username": .string("ada"), "epoch": .uint64(1)])]
            }
            let report = DBusInterface.Method("ReportActivity", in: [request], out: [response]) { _ in
                shared.state.withLock { $0.reports += 1 }
                return [.fields([:])]
            }
            let interface = DBusInterface(BrokerProtocol.interface, methods: [screen, signIn, report])
            object = try connection.export([interface], at: BrokerProtocol.path)
            try await connection.requestName(BrokerProtocol.busName)
        }

        var state: State { shared.state.withLock { $0 } }

        func show(_ show: ScreenContent, refusal: String? = nil) {
            shared.state.withLock { state in
                state.answer.revision += 1
                state.answer.show = show
                state.answer.username = "ada"
                state.answer.displayName = "Ada Lovelace"
                state.answer.end = SessionEnd(at: Date() + 60, reason: .inactivity, isSoon: true)
                state.answer.signInMethods = [.badge, .password]
                state.refusal = refusal
            }
        }

        func refuseScreen(_ code: String?) { shared.state.withLock { $0.screenRefusal = code } }

        func close() { connection.close() }
    }

    private let bus: PrivateBus
    private let broker: StandInBroker
    private let session: SwaySession

    init() async throws {
        bus = try PrivateBus()
        broker = try await StandInBroker(bus)
        session = try await SwaySession()
    }

    private func start(_ options: String...) async throws -> ChildProcess {
        try await ChildProcess.service(
            ChildProcess.built("shared-device-screen"),
            ["--bus", bus.address] + options,
            environment: session.environment.merging(["LC_ALL": "C.UTF-8"]) { $1 }
        )
    }

    /// Waits until the program says that this is on the screen.
    private func confirmed(_ show: ScreenContent) async throws {
        try await eventually("\(show) is on the screen") { broker.state.shows.last == show.rawValue }
    }

    /// Types as a person does.
    private func type(_ text: String) async throws {
        try await wtype("-d", "120", text, "-s", "120", "-k", "Return")
    }

    /// After a moment, because a new keyboard's first keys reach no program that does not know the keyboard yet.
    private func wtype(_ arguments: String...) async throws {
        try await Sessions.run(Sessions.unprivileged(["wtype", "-s", "500"] + arguments), session.environment)
    }

    @Test("a lock is confirmed, takes a badge and a PIN, and goes")
    func lock() async throws {
        let program = try await start()
        try await eventually("the ways to show are named") { program.errorText.contains("the lock by ") }
        broker.show(.lock, refusal: "authentication_failed")
        try await confirmed(.lock)
        try await type("1357")
        try await eventually("the PIN is passed on") { broker.state.signIns.count == 1 }
        broker.show(.lock)
        try await eventually("the refusal is shown") { program.errorText.contains("authentication_failed") }
        try await wtype("04A1B2C3", "-k", "Return")
        try await type("2468")
        try await eventually("badge and PIN are passed on") { broker.state.signIns.count == 2 }
        try await confirmed(.nothing)
        let application = BrokerProtocol.screenIdentifier
        #expect(broker.state.signIns[0] == ["application": application, "username": "ada", "pin": "1357"])
        #expect(broker.state.signIns[1] == ["application": application, "badge": "04A1B2C3", "pin": "2468"])
        #expect(!program.errorText.contains("2468") && !program.errorText.contains("04A1B2C3"))
        #expect(program.isRunning)
    }

    @Test("a program waits for its manifest and its broker, and ends if it is replaced")
    func refusals() async throws {
        broker.refuseScreen("not_eligible_to_use_broker")
        let program = try await start()
        func attempts() -> Int { program.errorText.components(separatedBy: "trying again").count - 1 }
        try await eventually("the refusal is told") { program.errorText.contains("not this one") }
        broker.refuseScreen(nil)
        broker.show(.lock)
        try await confirmed(.lock)
        #expect(attempts() == 1, "it says so once: \(program.errorText)")
        broker.close()
        try await eventually("the program misses the broker") { attempts() == 2 }
        let next = try await StandInBroker(bus)
        next.show(.lock)
        try await eventually("it still shows the lock") { next.state.shows.first == "lock" }
        let before = program.errorText.count
        next.refuseScreen("not_permitted")
        #expect(await program.exitStatus() == EX_NOPERM)
        #expect(program.errorText.dropFirst(before).contains("not this one"), "\(program.errorText)")
    }

    @Test("a warning takes no keys from the program below it, and the sign-in does")
    func panels() async throws {
        let program = try await start("--sign-in")
        try await eventually("the way to warn is named") {
            program.errorText.contains("warnings by zwlr_layer_shell_v1")
        }
        broker.show(.warning)
        try await confirmed(.warning)
        try await type("1")
        broker.show(.signIn)
        try await confirmed(.signIn)
        #expect(broker.state.reports == 0 && broker.state.signIns.isEmpty)
        try await wtype("04A1B2C3", "-k", "Return")
        try await type("2468")
        try await confirmed(.nothing)
        #expect(broker.state.signIns.first?["badge"] == "04A1B2C3")
    }
}
