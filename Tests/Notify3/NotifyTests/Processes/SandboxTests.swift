import Basics
import DBus
import Foundation
import NotifyCenter
import NotifyCenterTestKit
import Synchronization
import Testing

/// A bus behind a proxy like that of a Flatpak.
private struct ProxiedBus {
    static let isInstalled = access("/usr/bin/xdg-dbus-proxy", X_OK) == 0

    private let directory: TemporaryDirectory
    private let proxy: ChildProcess
    let address: String

    var bus: Bus { .address(address) }
    /// The environment of a process in the sandbox.
    var environment: [String: String] { ["DBUS_SESSION_BUS_ADDRESS": address, Bus.environmentVariable: address] }

    /// - Parameter permissions: The sandbox's permissions, as arguments of the proxy.
    init(_ bus: PrivateBus, _ permissions: String...) async throws {
        try await self.init(bus, arguments: ["--filter"] + permissions)
    }

    init(_ bus: PrivateBus, arguments: [String]) async throws {
        let directory = try TemporaryDirectory("proxy")
        let socket = "\(directory.path)/bus"
        let address = "unix:path=\(socket)"
        self.directory = directory
        self.address = address
        proxy = try ChildProcess("xdg-dbus-proxy", [bus.address, socket] + arguments)
        // The socket exists before the proxy listens.
        try await eventually("the proxy listens") { (try? DBusConnection.open(.address(address))) != nil }
    }
}

/// The notifications that an observer received, in order.
private final class Heard: Sendable {
    private let state = Locked<[String]>([])
    var all: [String] { state.withLock { $0 } }
    func add(_ text: String) { state.withLock { $0.append(text) } }
}

@Suite(
    "Processes behind a sandbox's proxy",
    .enabled(if: ProxiedBus.isInstalled, "needs xdg-dbus-proxy")
)
struct SandboxTests {
    private let bus: PrivateBus
    private static let permission = "--talk=\(NotifydProtocol.busName)"

    init() throws { bus = try PrivateBus() }

    @Test func withoutThePermissionARegistrationFailsWithTheRemedy() async throws {
        let notifyd = try await startNotifyd(on: bus)
        let filtered = try await ProxiedBus(bus)
        let darwin = DarwinNotifyCenter(bus: filtered.bus)
        for attempt in 0..<2 {
            let error = #expect(throws: DBusError.self) { _ = try darwin.observe("a.b") { _ in } }
            #expect(error?.code == .refused, "attempt \(attempt)")
            #expect(error?.remedy?.contains("--talk-name=org.notifycenter.Notifyd1") == true)
            #expect(error?.description.contains("sandbox") == true)
        }
        await #expect(throws: DBusError.self) { _ = try await darwin.observe("a.b") { _ in } }
        await #expect(throws: DBusError.self) {
            _ = try await DistributedNotifyCenter(bus: filtered.bus).observe(nil) { _ in }
        }
        let util = try ChildProcess(
            ChildProcess.built("notifyutil"),
            ["--ready", "-1", "a.b"],
            environment: filtered.environment
        )
        #expect(await util.exitStatus() != 0)
        try await eventually("it says what to do") {
            util.errorText.contains("--talk-name=org.notifycenter.Notifyd1")
        }
        #expect(!util.errorText.contains("ready"))
        // Only notifyd posts a reserved name, and its posts do not pass this proxy either.
        let reserved = try ChildProcess(
            ChildProcess.built("notifyutil"),
            ["--ready", "-1", "user.uid.\(geteuid()).x"],
            environment: filtered.environment
        )
        #expect(await reserved.exitStatus() != 0)
        #expect(!reserved.errorText.contains("ready"))
        withExtendedLifetime(notifyd) {}
    }

    @Test func notificationsComeThroughNotifyd() async throws {
        let notifyd = try await startNotifyd(on: bus)
        let filtered = try await ProxiedBus(bus, Self.permission)
        let (inside, outside) = (DistributedNotifyCenter(bus: filtered.bus), DistributedNotifyCenter(bus: bus.bus))
        let heard = Heard()
        let poster = try DBusConnection.open(bus.bus)
        let observation = try await inside.observe("a.b", delivery: .immediate) {
            heard.add("\($0.object ?? "") \($0.userInfo?["n"] == 1) \($0.sender == poster.uniqueName)")
        }
        try DistributedNotifyCenter(connection: poster).post("a.b", object: "o", userInfo: ["n": 1])
        try await eventually("it hears") { heard.all == ["o true true"] }
        // Its own post arrives once, and posts from inside arrive outside.
        let back = Heard()
        let outer = try await outside.observe("a.b", delivery: .immediate) { back.add($0.object ?? "") }
        try inside.post("a.b", object: "mine")
        try await eventually("it goes out") { back.all == ["mine"] }
        try await inside.flush()
        #expect(heard.all == ["o true true", "mine false false"])
        observation.cancel()
        try await inside.flush()
        try outside.post("a.b", object: "late")
        try await eventually("the last one is heard outside") { back.all == ["mine", "late"] }
        withExtendedLifetime((outer, notifyd)) {}
    }

    @Test func aPosterWhoseNamePassesTheProxyIsHeardOnce() async throws {
        let notifyd = try await startNotifyd(on: bus)
        let filtered = try await ProxiedBus(bus, Self.permission, "--talk=org.example.poster")
        let (named, last) = (try DBusConnection.open(bus.bus), DarwinNotifyCenter(bus: bus.bus))
        try await named.requestName("org.example.poster")
        let heard = Heard()
        let inside = DarwinNotifyCenter(bus: filtered.bus)
        let observations = [
            try await inside.observe("a.b", delivery: .immediate) { _ in heard.add("named") },
            try await inside.observe("last", delivery: .immediate) { _ in heard.add("last") },
        ]
        try DarwinNotifyCenter(connection: named).post("a.b")
        try await named.flush()
        try last.post("last")
        try await eventually("the last post is heard") { heard.all.contains("last") }
        #expect(heard.all == ["named", "last"])
        withExtendedLifetime((observations, notifyd)) {}
    }

    @Test func anObserverOfAnyNameHearsEachCenterOnly() async throws {
        let notifyd = try await startNotifyd(on: bus)
        let filtered = try await ProxiedBus(bus, Self.permission)
        let heard = Heard()
        let inside = DistributedNotifyCenter(bus: filtered.bus)
        let observation = try await inside.observe(nil, delivery: .immediate) { heard.add($0.name.rawValue) }
        try DarwinNotifyCenter(bus: bus.bus).post("darwin")
        try DistributedNotifyCenter(bus: bus.bus).post("distributed")
        try await eventually("it hears") { heard.all == ["distributed"] }
        withExtendedLifetime((observation, notifyd)) {}
    }

    @Test func notifyutilHearsAndReadsStates() async throws {
        let notifyd = try await startNotifyd(on: bus)
        let filtered = try await ProxiedBus(bus, Self.permission)
        let util = try ChildProcess(
            ChildProcess.built("notifyutil"),
            ["--ready", "-v", "-1", "a.b"],
            environment: filtered.environment
        )
        try await eventually("it is ready") { util.errorText.contains("ready") }
        try DarwinNotifyCenter(bus: bus.bus).post("a.b")
        #expect(await util.exitStatus() == 0)
        try await util.line { $0.contains(" a.b ") }
        withExtendedLifetime(notifyd) {}
    }

    @Test func aNewNotifydRelaysAgain() async throws {
        let first = try await startNotifyd(on: bus)
        let filtered = try await ProxiedBus(bus, Self.permission)
        let failures = UnthrownFailures.observe { _ in }
        let heard = Heard()
        let inside = DarwinNotifyCenter(bus: filtered.bus)
        let observation = try await inside.observe("a.b", delivery: .immediate) { _ in heard.add("a.b") }
        first.kill()
        first.waitUntilExit()
        let second = try await startNotifyd(on: bus)
        let outside = DarwinNotifyCenter(bus: bus.bus)
        try await eventually("it hears again") {
            try outside.post("a.b")
            return !heard.all.isEmpty
        }
        withExtendedLifetime((observation, second, failures)) {}
    }

    @Test func aRestoredBusRelaysAgain() async throws {
        let first = try await startNotifyd(on: bus)
        let filtered = try await ProxiedBus(bus, Self.permission)
        let failures = UnthrownFailures.observe { _ in }
        let heard = Heard()
        let inside = DarwinNotifyCenter(bus: filtered.bus)
        let observation = try await inside.observe("a.b", delivery: .immediate) { _ in heard.add("a.b") }
        bus.stop()
        first.waitUntilExit()
        try bus.start()
        let second = try await startNotifyd(on: bus)
        let outside = DarwinNotifyCenter(bus: bus.bus)
        try await eventually("it hears again") {
            try outside.post("a.b")
            return !heard.all.isEmpty
        }
        withExtendedLifetime((observation, second, failures)) {}
    }

    /// Stands in for notifyd: accepts registrations for posts, and refuses some as the test chooses.
    private final class Relay: Sendable {
        final class Calls: Sendable { let all = Locked<[[String]]>([]) }

        let connection: DBusConnection
        let calls = Calls()
        private let object = Locked<Observation?>(nil)

        /// - Parameter refusal: The refusal of a call that registers these interfaces. `calls` contains the call
        ///   already.
        init(_ bus: Bus, refusal: @escaping @Sendable ([String], Int) -> NotifydProtocol.ErrorName?) throws {
            connection = try DBusConnection.open(bus)
            let method = DBusInterface.Method("Relay", in: [.init("interfaces", "as")], out: []) { [calls] call in
                let interfaces = call.arguments.first?.elementsValue?.compactMap(\.stringValue) ?? []
                let count = calls.all.withLock { calls in
                    calls.append(interfaces)
                    return calls.count
                }
                guard let error = refusal(interfaces, count) else { return [] }
                throw MethodFailure(name: NotifydProtocol.errorPrefix + error.rawValue, message: "no")
            }
            let token = try connection.export(
                [DBusInterface(NotifydProtocol.interface, methods: [method])],
                at: NotifydProtocol.path
            )
            object.withLock { $0 = token }
        }

        /// Starts as another notifyd, for which everything is registered again.
        func begin() async throws {
            calls.all.withLock { $0 = [] }
            try await connection.requestName(NotifydProtocol.busName)
        }
    }

    @Test func aNameThatTheNextNotifydRefusesKeepsNoOtherOneAway() async throws {
        let filtered = try await ProxiedBus(bus, Self.permission)
        let isNext = Locked(false)
        let relay = try Relay(bus.bus) { interfaces, _ in
            isNext.withLock { $0 } && interfaces.contains { $0.hasSuffix(".bad") } ? .notAuthorized : nil
        }
        try await relay.begin()
        let failures = Heard()
        let observer = UnthrownFailures.observe { failures.add("\($0)") }
        let inside = DarwinNotifyCenter(bus: filtered.bus)
        let observations = [
            try await inside.observe("n.good", delivery: .immediate) { _ in },
            try await inside.observe("n.bad", delivery: .immediate) { _ in },
        ]
        try await relay.connection.releaseName(NotifydProtocol.busName)
        isNext.withLock { $0 = true }
        try await relay.begin()
        let prefix = RelayedCenter.darwin.rawValue
        try await eventually("each is asked for alone") {
            Set(relay.calls.all.withLock { $0 }).isSuperset(of: [["\(prefix).n.good"], ["\(prefix).n.bad"]])
        }
        try await eventually("the refusal is told") { failures.all.contains { $0.contains("n.bad") } }
        #expect(!failures.all.contains { $0.contains("n.good") })
        withExtendedLifetime((observations, observer)) {}
    }

    @Test func aNotifydWithoutRoomIsAskedAgain() async throws {
        let filtered = try await ProxiedBus(bus, Self.permission)
        let refusals = Locked(0)
        // Refuses the first call with all interfaces, and the call with the first interface only.
        let relay = try Relay(bus.bus) { _, _ in
            refusals.withLock { refusals in
                refusals -= 1
                return refusals >= 0 ? .limitsExceeded : nil
            }
        }
        try await relay.begin()
        let observer = UnthrownFailures.observe { _ in }
        let inside = DarwinNotifyCenter(bus: filtered.bus)
        let observation = try await inside.observe("a.b", delivery: .immediate) { _ in }
        try await relay.connection.releaseName(NotifydProtocol.busName)
        refusals.withLock { $0 = 2 }
        try await relay.begin()
        try await eventually("it is registered") { refusals.withLock { $0 } < 0 }
        withExtendedLifetime((observation, observer)) {}
    }

    @Test func threadsThatRegisterAtTheSameTimeFindOutOnceWhetherTheBusIsFiltered() async throws {
        let notifyd = try await startNotifyd(on: bus)
        let filtered = try await ProxiedBus(bus, Self.permission)
        let outside = try DBusConnection.open(bus.bus)
        let probes = Locked(0)
        let probe = MatchRule(interface: "org.notifycenter.Probe1")
        let token = outside.onSignal { if $0.interface == "org.notifycenter.Probe1" { probes.withLock { $0 += 1 } } }
        let lease: MatchRuleLease = try await outside.addMatch(probe)
        let inside = DarwinNotifyCenter(bus: filtered.bus)
        let observations = Locked<[NotificationObservation]>([])
        for number in 0..<4 {
            Thread.detachNewThread {
                guard let observation = try? inside.observe("n.\(number)", delivery: .immediate, handler: { _ in })
                else {
                    return
                }
                observations.withLock { $0.append(observation) }
            }
        }
        try await eventually("all are registered") { observations.withLock { $0.count } == 4 }
        try await outside.flush()
        #expect(probes.withLock { $0 } == 1)
        withExtendedLifetime((token, lease, notifyd)) {}
    }

    // Any process may send to a process in a sandbox.
    @Test func onlyNotifydRelays() async throws {
        let notifyd = try await startNotifyd(on: bus)
        let filtered = try await ProxiedBus(bus, Self.permission)
        let heard = Heard()
        let connection = try DBusConnection.open(filtered.bus)
        let inside = DarwinNotifyCenter(connection: connection)
        let forger = try DBusConnection.open(bus.bus)
        let observation = try await inside.observe("a.b", delivery: .immediate) { heard.add($0.sender ?? "") }
        for path in ["/org/notifycenter", NotifydProtocol.relayPath(ofPostsBy: ":1.0")] {
            try forger.send(
                .signal(
                    path: path,
                    interface: "org.notifycenter.Darwin1.a.b",
                    member: "Posted",
                    arguments: [.string("a.b")],
                    destination: connection.uniqueName
                )
            )
        }
        try await forger.flush()
        try DarwinNotifyCenter(connection: forger).post("a.b")
        try await eventually("the post is heard") { heard.all == [forger.uniqueName] }
        withExtendedLifetime((observation, notifyd)) {}
    }

    @Test func aReservedNameIsHeardFromNotifydAlone() async throws {
        let directory = try TemporaryDirectory("notify.conf")
        let file = "\(directory.path)/notify.conf"
        try "reserve r. \(geteuid()) 0 rw----\n".write(toFile: file, atomically: true, encoding: .utf8)
        let notifyd = try ChildProcess(
            ChildProcess.built("notifyd"),
            ["--configuration", file],
            environment: bus.environment
        )
        let connection = try DBusConnection.open(bus.bus)
        try await eventually("notifyd runs") { try await connection.owner(of: NotifydProtocol.busName) != nil }
        let filtered = try await ProxiedBus(bus, Self.permission)
        // The probe does not see the configuration.
        let probe = try Probe(filtered.environment)
        let (reserved, open) = (try await probe.register("dispatch", "r.x"), try await probe.register("dispatch", "o"))
        let center = DarwinNotifyCenter(connection: connection)
        // The post of a process that does not see the configuration either.
        try center.post("r.x")
        try center.post("o")
        try await eventually("the open name is heard") { probe.calls(open) == 1 }
        #expect(probe.calls(reserved) == 0)
        _ = try await connection.call(NotifydProtocol.call(.post, [.string("r.x")]))
        try await eventually("the reserved name is heard") { probe.calls(reserved) == 1 }
        withExtendedLifetime(notifyd) {}
    }

    private static let canSandbox =
        access("/usr/bin/bwrap", X_OK) == 0 && access("/etc/notify.conf", F_OK) != 0
        && (try? ChildProcess("bwrap", ["--ro-bind", "/", "/", "true"]))?.waitUntilExit() == 0

    // Rules, a.5
    @Test(.enabled(if: canSandbox, "needs bubblewrap, a user who may make sandboxes, and no /etc/notify.conf"))
    func theConfigurationOfTheMachineIsFoundWhereFlatpakShowsIt() async throws {
        let directory = try TemporaryDirectory("notify.conf")
        let file = "\(directory.path)/notify.conf"
        try "reserve r. 0 0 rw----\n".write(toFile: file, atomically: true, encoding: .utf8)
        chmod(file, 0o666)
        let view = ["--ro-bind", "/", "/", "--tmpfs", "/run", "--ro-bind", file, "/run/host/etc/notify.conf"]
        let post = [ChildProcess.built("notifyutil"), "-p", "r.x"]
        let util = try ChildProcess("bwrap", view + post, environment: bus.environment)
        #expect(await util.exitStatus() != 0)
        try await eventually("it has read the file") { util.errorText.contains("/run/host/etc/notify.conf") }
    }

    @Test func aFloodEndsAndTheNextPostArrives() async throws {
        let notifyd = try await startNotifyd(on: bus)
        let filtered = try await ProxiedBus(bus, Self.permission)
        let heard = Heard()
        let inside = DistributedNotifyCenter(bus: filtered.bus)
        let observations = [
            try await inside.observe("flood", delivery: .immediate) { _ in heard.add("flood") },
            try await inside.observe("last", delivery: .immediate) { _ in heard.add("last") },
        ]
        let outside = DistributedNotifyCenter(bus: bus.bus)
        let data = PropertyListValue.data(Array(repeating: 7, count: 20_000))
        for _ in 0..<2000 { try outside.post("flood", userInfo: ["data": data]) }
        try await outside.flush()
        try await eventually("it hears the last one") {
            try outside.post("last")
            return heard.all.contains("last")
        }
        #expect(heard.all.count { $0 == "flood" } > 0)
        withExtendedLifetime((observations, notifyd)) {}
    }

    @Test func aProxyThatDoesNotFilterNeedsNoNotifyd() async throws {
        let proxy = try await ProxiedBus(bus, arguments: [])
        let heard = Heard()
        let inside = DarwinNotifyCenter(bus: proxy.bus)
        let observation = try await inside.observe("a.b", delivery: .immediate) { _ in heard.add("a.b") }
        try DarwinNotifyCenter(bus: bus.bus).post("a.b")
        try await eventually("it hears") { heard.all == ["a.b"] }
        withExtendedLifetime((observation, proxy)) {}
    }
}
