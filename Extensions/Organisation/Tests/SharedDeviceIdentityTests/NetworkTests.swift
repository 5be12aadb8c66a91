import Basics
import DBus
import FoundationEssentials
import Glibc
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import Synchronization
import TestProviders
import Testing

/// Owns the broker's name on a bus and records the kinds of the reported events.
private final class Listener: Sendable {
    let bus: PrivateBus
    let directory: TemporaryDirectory
    let kinds = Locked<[String]>([])
    private let broker: DBusConnection
    private let object = Locked<Observation?>(nil)

    init() async throws {
        bus = try PrivateBus()
        directory = try TemporaryDirectory("network")
        broker = try DBusConnection.open(bus.bus)
        let method = DBusInterface.Method(
            "ReportProviderEvents",
            in: [.init("request", "a{sv}")],
            out: [.init("answer", "a{sv}")]
        ) { [weak self] call in
            let told = call.arguments.first?.fieldsValue?["events"]?.elementsValue ?? []
            self?.kinds.withLock { $0 += told.compactMap { $0.fieldsValue?["kind"]?.stringValue } }
            return [.fields([:])]
        }
        let token = try broker.export(
            [DBusInterface(BrokerProtocol.interface, methods: [method])],
            at: BrokerProtocol.path
        )
        object.withLock { $0 = token }
        try await broker.requestName(BrokerProtocol.busName)
    }
}

/// The network namespace of a process.
private struct PrivateNetwork {
    private let process: ChildProcess

    init(_ process: ChildProcess) { self.process = process }

    var path: String { "/proc/\(process.identifier)/ns/net" }

    func start(_ program: String, _ arguments: [String]) throws -> ChildProcess {
        try ChildProcess("/usr/bin/nsenter", ["--net=\(path)", program] + arguments)
    }

    /// Runs the commands in one process, so that they follow each other immediately even if the test's threads are
    /// busy.
    func ip(_ commands: [String]) async throws {
        let script = commands.map { "/usr/sbin/ip \($0)" }.joined(separator: " && ")
        let child = try start("/bin/sh", ["-c", script])
        let status = await child.exitStatus()
        #expect(status == 0, "\(script): \(child.errorText)")
    }
}

/// Connects a device in a network namespace to the tests' provider at 127.0.0.1 of the machine, through a second
/// namespace and a link that can be taken down. The machine's own network is not changed.
private final class LinkToProvider: Sendable {
    private let device: PrivateNetwork
    private let relays: [ChildProcess]
    /// Keeps the second namespace alive.
    private let holder: ChildProcess

    /// Forwards connections from one end to the other. An end is an address with a port, or a path.
    private static let relay = #"""
        import os, socket, sys, threading
        def end(name):
            if name.startswith("/"):
                return socket.AF_UNIX, name
            host, port = name.split(":")
            return socket.AF_INET, (host, int(port))
        def pump(source, drain):
            try:
                while data := source.recv(65536):
                    drain.sendall(data)
            except OSError:
                pass
            for one in (source, drain):
                try:
                    one.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
        def serve(one):
            family, address = end(sys.argv[2])
            other = socket.socket(family)
            other.settimeout(5)
            try:
                other.connect(address)
            except OSError:
                return one.close()
            other.settimeout(None)
            threading.Thread(target=pump, args=(one, other), daemon=True).start()
            pump(other, one)
        family, address = end(sys.argv[1])
        door = socket.socket(family)
        door.bind(address)
        door.listen()
        print("ready", flush=True)
        while True:
            threading.Thread(target=serve, args=(door.accept()[0],), daemon=True).start()
        """#

    /// - Parameters:
    ///   - process: the device's process.
    ///   - directory: for a Unix socket, which belongs to no network namespace.
    init(_ process: ChildProcess, port: UInt16, directory: String) async throws {
        device = PrivateNetwork(process)
        holder = try ChildProcess("/usr/bin/unshare", ["--net", "--", "/bin/sh", "-c", "echo ready; exec sleep 1000"])
        _ = try await holder.line { $0 == "ready" }
        let provider = PrivateNetwork(holder)
        try await device.ip([
            "link set lo up", "link add way0 type veth peer name far0 netns \(holder.identifier)",
            "address add 10.9.9.7/24 dev way0",
        ])
        try await provider.ip(["address add 10.9.9.1/24 dev far0", "link set far0 up"])
        let (python, socket) = ("/usr/bin/python3", directory + "/provider.socket")
        var relays = [try ChildProcess(python, ["-c", Self.relay, socket, "127.0.0.1:\(port)"])]
        relays.append(try provider.start(python, ["-c", Self.relay, "10.9.9.1:4430", socket]))
        relays.append(try device.start(python, ["-c", Self.relay, "127.0.0.1:\(port)", "10.9.9.1:4430"]))
        for relay in relays { _ = try await relay.line { $0 == "ready" } }
        self.relays = relays
    }

    func up() async throws {
        try await device.ip(["link set way0 up", "route add default via 10.9.9.1 dev way0"])
    }

    func down() async throws { try await device.ip(["link set way0 down"]) }
}

@Suite(
    "The network's coming back",
    .enabled(
        if: geteuid() == 0 && access("/usr/sbin/ip", X_OK) == 0 && access("/usr/bin/unshare", X_OK) == 0,
        "only root has networks of its own, by ip and unshare"
    )
)
struct NetworkTests {
    @Test("the broker is told soon, once per burst of changes, and only of usable routes")
    func comesBack() async throws {
        let listener = try await Listener()
        let file = listener.directory.path + "/managed-configuration.json"
        let provider = #""oidcIssuer": "https://login.example", "oidcClientID": "a""#
        try #"{"sharedDeviceMode": true, "identity": "oidc", \#(provider)}"#
            .write(toFile: file, atomically: true, encoding: .utf8)
        // A network namespace without a working link. The bus address is a path, which works in any namespace.
        let process = try await ChildProcess.service(
            "/usr/bin/unshare",
            [
                "--net", "--", ChildProcess.built("shared-device-identity"), "--bus", listener.bus.address,
                "--configuration", file,
            ]
        )
        defer { process.kill() }
        let network = PrivateNetwork(process)
        // A link that leads only to this machine is no route.
        try await network.ip([
            "link set lo up", "link add way0 type veth peer name far0", "link set far0 up",
            "address add 10.9.9.7/24 dev way0",
        ])
        let up = ["link set way0 up", "route add default via 10.9.9.1 dev way0"]
        let begin = ContinuousClock.now
        try await network.ip((1...5).flatMap { _ in up + ["link set way0 down"] } + up)
        let start = ContinuousClock.now
        try await eventually("the word to the broker") { !listener.kinds.withLock { $0.isEmpty } }
        #expect(ContinuousClock.now - start < .seconds(60))
        let told = listener.kinds.withLock { $0.count }
        // One event in ten seconds. More are permitted only if the machine took that long.
        #expect(told <= 1 + Int((ContinuousClock.now - begin) / .seconds(10)))
        // A second link is a second route. It is reported when the pause has ended, if not earlier.
        try await network.ip([
            "link add way1 type veth peer name far1", "link set far1 up", "address add 10.9.10.7/24 dev way1",
            "link set way1 up",
        ])
        try await eventually("the second word") { listener.kinds.withLock { $0.count } > told }
        #expect(listener.kinds.withLock { $0.allSatisfy { $0 == "networkUp" } })
    }

    @Test("a user signed out remotely while offline is signed out when the network returns")
    func signedOutWhileOffline() async throws {
        let fault = "none.offline"
        let device = try await WholeDevice(
            fault: fault,
            // By the schedule alone the next check would be tomorrow.
            more: #", "remoteCheckInterval": 86400, "offlineGrace": 86400"#,
            isApart: true
        )
        let faulty = try await FaultyProvider.shared.value
        let link = try await LinkToProvider(
            device.process(.identity),
            port: faulty.port,
            directory: device.directory.path
        )
        try await link.up()
        let test = try faulty.client(fault)
        // The service has reported the first link by now. The rest of the test is about the second time.
        try await eventually("the way to the provider") { (try? await device.signIn(test)) != nil }
        _ = try await device.token()
        try await link.down()
        _ = try await test.page("sign-everybody-out")
        let error = await #expect(throws: SharedDeviceError.self) { try await device.token() }
        #expect(error?.code == .providerUnavailable, "\(String(describing: error))")
        #expect(try await device.account()?.username == "ada@example.com")
        try await link.up()
        try await eventually("Ada's sign-out") { try await device.account() == nil }
        #expect(try await device.call(.getCurrentAccount)["account"] == nil)
    }
}
