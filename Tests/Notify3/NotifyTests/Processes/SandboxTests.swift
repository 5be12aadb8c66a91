import Basics
import DBus
import DBusService
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

    /// - Parameter arguments: The sandbox's permissions, as arguments of the proxy.
    init(_ bus: PrivateBus, _ arguments: String...) async throws {
        let directory = try TemporaryDirectory("proxy")
        let socket = "\(directory.path)/bus"
        let address = "unix:path=\(socket)"
        (self.directory, self.address) = (directory, address)
        proxy = try ChildProcess("xdg-dbus-proxy", [bus.address, socket] + arguments)
        // The socket exists before the proxy listens.
        try await eventually("the proxy listens") { (try? DBusConnection.open(.address(address))) != nil }
    }
}

/// A Darwin center, and the names that its observers hear.
private final class Listener {
    let heard = SharedLines()
    private let bus: ProxiedBus
    private var observations: [NotificationObservation] = []

    init(on bus: ProxiedBus, _ names: String...) async throws {
        self.bus = bus
        let center = DarwinNotifyCenter(bus: bus.bus)
        for name in names {
            let observation = try await center.observe(NotificationName(name), delivery: .immediate) { [heard] in
                heard.append($0.name.rawValue)
            }
            observations.append(observation)
        }
    }
}

@Suite("Processes behind a sandbox's proxy", .enabled(if: ProxiedBus.isInstalled, "needs xdg-dbus-proxy"))
struct SandboxTests {
    private let bus: PrivateBus
    private let outside: DarwinNotifyCenter
    private static let permission = "--talk=\(NotifydProtocol.busName)"

    init() throws {
        bus = try PrivateBus()
        outside = DarwinNotifyCenter(bus: bus.bus)
    }

    private func filtered() async throws -> ProxiedBus { try await ProxiedBus(bus, "--filter", Self.permission) }

    private func notifyutil(_ arguments: String..., on bus: ProxiedBus) throws -> ChildProcess {
        try ChildProcess(ChildProcess.built("notifyutil"), ["--ready"] + arguments, environment: bus.environment)
    }

    @Test func withoutThePermissionARegistrationFailsWithTheRemedy() async throws {
        let notifyd = try await startNotifyd(on: bus)
        let filtered = try await ProxiedBus(bus, "--filter")
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
        // Only notifyd posts a reserved name, and its posts do not pass this proxy either.
        for name in ["a.b", "user.uid.\(geteuid()).x"] {
            let outcome = try await Outcome(of: notifyutil("-1", name, on: filtered))
            #expect(outcome.status != 0 && !outcome.errors.contains("ready"), "\(outcome)")
            #expect(outcome.errors.contains("--talk-name=org.notifycenter.Notifyd1"), "\(outcome)")
        }
        withExtendedLifetime(notifyd) {}
    }

    @Test func notificationsComeThroughNotifyd() async throws {
        let notifyd = try await startNotifyd(on: bus)
        let filtered = try await filtered()
        let (inside, outside) = (DistributedNotifyCenter(bus: filtered.bus), DistributedNotifyCenter(bus: bus.bus))
        let heard = SharedLines()
        let poster = try DBusConnection.open(bus.bus)
        let observation = try await inside.observe("a.b", delivery: .immediate) {
            heard.append("\($0.object ?? "") \($0.userInfo?["n"] == 1) \($0.sender == poster.uniqueName)")
        }
        try DistributedNotifyCenter(connection: poster).post("a.b", object: "o", userInfo: ["n": 1])
        try await eventually("the observer hears") { heard.lines == ["o true true"] }
        // Its own post arrives once, and posts from inside arrive outside.
        let back = SharedLines()
        let outer = try await outside.observe("a.b", delivery: .immediate) { back.append($0.object ?? "") }
        try inside.post("a.b", object: "mine")
        try await eventually("the post from inside arrives outside") { back.lines == ["mine"] }
        try await inside.flush()
        #expect(heard.lines == ["o true true", "mine false false"])
        observation.cancel()
        try await inside.flush()
        try outside.post("a.b", object: "late")
        try await eventually("the last one is heard outside") { back.lines == ["mine", "late"] }
        withExtendedLifetime((outer, notifyd, filtered)) {}
    }

    @Test func anObserverOfAnyNameHearsItsCenterAloneAndNotifyutilHears() async throws {
        let notifyd = try await startNotifyd(on: bus)
        let filtered = try await filtered()
        let inside = DistributedNotifyCenter(bus: filtered.bus)
        let heard = SharedLines()
        let observation = try await inside.observe(nil, delivery: .immediate) { heard.append($0.name.rawValue) }
        try outside.post("darwin")
        try DistributedNotifyCenter(bus: bus.bus).post("distributed")
        try await eventually("the observer hears") { heard.lines == ["distributed"] }
        let util = try notifyutil("-v", "-1", "a.b", on: filtered)
        try await eventually("it is ready") { util.errorText.contains("ready") }
        try outside.post("a.b")
        let outcome = await Outcome(of: util)
        #expect(outcome.status == 0 && outcome.lines.contains { $0.contains(" a.b ") }, "\(outcome)")
        withExtendedLifetime((observation, notifyd, filtered)) {}
    }

    @Test func aPosterWhoseNamePassesTheProxyIsHeardOnce() async throws {
        let notifyd = try await startNotifyd(on: bus)
        let filtered = try await ProxiedBus(bus, "--filter", Self.permission, "--talk=org.example.poster")
        let named = try DBusConnection.open(bus.bus)
        try await named.requestName("org.example.poster")
        let listener = try await Listener(on: filtered, "named", "last")
        try DarwinNotifyCenter(connection: named).post("named")
        try await named.flush()
        try outside.post("last")
        try await eventually("the last post is heard") { listener.heard.lines.contains("last") }
        #expect(listener.heard.lines == ["named", "last"])
        withExtendedLifetime((listener, notifyd)) {}
    }

    @Test func aNewNotifydAndARestoredBusRelayAgain() async throws {
        var notifyd = try await startNotifyd(on: bus)
        let failures = UnthrownFailures.observe { _ in }
        let listener = try await Listener(on: filtered(), "a.b")
        for isBusLost in [false, true] {
            if isBusLost {
                bus.stop()
            } else {
                notifyd.kill()
            }
            notifyd.waitUntilExit()
            if isBusLost { try bus.start() }
            notifyd = try await startNotifyd(on: bus)
            let before = listener.heard.lines.count
            try await eventually("the listener hears again") {
                // The poster may not have noticed the new bus.
                try? outside.post("a.b")
                return listener.heard.lines.count > before
            }
        }
        withExtendedLifetime((listener, failures)) {}
    }

    /// Stands in for notifyd, and refuses registrations for posts as `refusal` says, which gets their interfaces.
    private func standIn(
        refusal: @escaping @Sendable (String) -> NotifydProtocol.ErrorName?
    ) async throws -> StandInNotifyd {
        try await StandInNotifyd(on: bus.bus) { word in
            guard case .relay(let interfaces) = word, let error = refusal(interfaces) else { return nil }
            return MethodFailure(name: NotifydProtocol.errorPrefix + error.rawValue, message: "no")
        }
    }

    @Test func aNameThatTheNextNotifydRefusesBlocksNoOtherName() async throws {
        let isNext = Locked(false)
        let notifyd = try await standIn { isNext.withLock { $0 } && $0.contains(".bad") ? .notAuthorized : nil }
        let failures = SharedLines()
        let observer = UnthrownFailures.observe { failures.append("\($0)") }
        let listener = try await Listener(on: filtered(), "n.good", "n.bad")
        try await notifyd.connection.releaseName(NotifydProtocol.busName)
        isNext.withLock { $0 = true }
        let before = notifyd.words.count
        try await notifyd.connection.requestName(NotifydProtocol.busName)
        let each = Set(["good", "bad"].map { StandInNotifyd.Word.relay("\(WireKind.darwin.rawValue).n.\($0)") })
        try await eventually("each name is requested alone") { each.isSubset(of: notifyd.words.dropFirst(before)) }
        try await eventually("the refusal is told") { failures.lines.contains { $0.contains("n.bad") } }
        #expect(!failures.lines.contains { $0.contains("n.good") })
        withExtendedLifetime((listener, observer)) {}
    }

    @Test func aNotifydWithoutRoomIsAskedAgain() async throws {
        let refusals = Locked(0)
        // Refuses the first call with all interfaces, and the call with the first interface only.
        let notifyd = try await standIn { _ in
            refusals.withLock { refusals in
                refusals -= 1
                return refusals >= 0 ? .limitsExceeded : nil
            }
        }
        let observer = UnthrownFailures.observe { _ in }
        let listener = try await Listener(on: filtered(), "a.b")
        try await notifyd.connection.releaseName(NotifydProtocol.busName)
        refusals.withLock { $0 = 2 }
        try await notifyd.connection.requestName(NotifydProtocol.busName)
        try await eventually("the listener is registered") { refusals.withLock { $0 } < 0 }
        withExtendedLifetime((listener, observer)) {}
    }

    @Test func threadsThatRegisterAtTheSameTimeFindOutOnceWhetherTheBusIsFiltered() async throws {
        let notifyd = try await startNotifyd(on: bus)
        let outside = try DBusConnection.open(bus.bus)
        let probes = SharedLines()
        let token = outside.onSignal { if $0.interface == "org.notifycenter.Probe1" { probes.append("probe") } }
        let lease: MatchRuleLease = try await outside.addMatch(MatchRule(interface: "org.notifycenter.Probe1"))
        let filtered = try await filtered()
        let inside = DarwinNotifyCenter(bus: filtered.bus)
        let observations = Locked<[Result<NotificationObservation, any Error>]>([])
        for number in 0..<4 {
            Thread.detachNewThread {
                let result = Result { try inside.observe("n.\(number)", delivery: .immediate, handler: { _ in }) }
                observations.withLock { $0.append(result) }
            }
        }
        try await eventually("all calls have returned") { observations.withLock { $0.count } == 4 }
        for result in observations.withLock({ $0 }) { _ = try result.get() }
        try await outside.flush()
        #expect(probes.lines.count == 1)
        withExtendedLifetime((token, lease, notifyd, filtered)) {}
    }

    // Any process may send to a process in a sandbox.
    @Test func onlyNotifydRelays() async throws {
        let notifyd = try await startNotifyd(on: bus)
        let filtered = try await filtered()
        let heard = SharedLines()
        let connection = try DBusConnection.open(filtered.bus)
        let inside = DarwinNotifyCenter(connection: connection)
        let forger = try DBusConnection.open(bus.bus)
        let observation = try await inside.observe("a.b", delivery: .immediate) { heard.append($0.sender ?? "") }
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
        try await eventually("the post is heard") { heard.lines == [forger.uniqueName] }
        withExtendedLifetime((observation, notifyd, filtered)) {}
    }

    private func writeConfiguration(_ text: String, in directory: TemporaryDirectory) throws -> String {
        let file = "\(directory.path)/notify.conf"
        try text.write(toFile: file, atomically: true, encoding: .utf8)
        return file
    }

    @Test func aReservedNameIsHeardFromNotifydAlone() async throws {
        let directory = try TemporaryDirectory("notify.conf")
        let file = try writeConfiguration("reserve r. \(geteuid()) 0 rw----\n", in: directory)
        let notifyd = try await startNotifyd(on: bus, ["--configuration", file])
        let filtered = try await filtered()
        // The probe does not see the configuration.
        let probe = try Probe(filtered.environment)
        let (reserved, open) = (try await probe.register("dispatch", "r.x"), try await probe.register("dispatch", "o"))
        // The post of a process that does not see the configuration either.
        try outside.post("r.x")
        try outside.post("o")
        try await eventually("the open name is heard") { probe.calls(open) == 1 }
        #expect(probe.calls(reserved) == 0)
        _ = try await DBusConnection.open(bus.bus).call(NotifydProtocol.call(.post, [.string("r.x")]))
        try await eventually("the reserved name is heard") { probe.calls(reserved) == 1 }
        withExtendedLifetime((notifyd, filtered)) {}
    }

    private static let canSandbox =
        access("/usr/bin/bwrap", X_OK) == 0 && access("/etc/notify.conf", F_OK) != 0
        && (try? ChildProcess("bwrap", ["--ro-bind", "/", "/", "true"]))?.waitUntilExit() == 0

    // Rules, a.5
    @Test(.enabled(if: canSandbox, "needs bubblewrap, a user who may make sandboxes, and no /etc/notify.conf"))
    func theConfigurationOfTheMachineIsFoundWhereFlatpakShowsIt() async throws {
        let directory = try TemporaryDirectory("notify.conf")
        let file = try writeConfiguration("reserve r. 0 0 rw----\n", in: directory)
        chmod(file, 0o666)
        let view = ["--ro-bind", "/", "/", "--tmpfs", "/run", "--ro-bind", file, "/run/host/etc/notify.conf"]
        let post = [ChildProcess.built("notifyutil"), "-p", "r.x"]
        let outcome = try await Outcome(of: ChildProcess("bwrap", view + post, environment: bus.environment))
        #expect(outcome.status != 0 && outcome.errors.contains("/run/host/etc/notify.conf"), "\(outcome)")
    }

    @Test func aProxyThatDoesNotFilterNeedsNoNotifyd() async throws {
        let listener = try await Listener(on: ProxiedBus(bus), "a.b")
        try outside.post("a.b")
        try await eventually("the observer hears") { listener.heard.lines == ["a.b"] }
        withExtendedLifetime(listener) {}
    }
}
