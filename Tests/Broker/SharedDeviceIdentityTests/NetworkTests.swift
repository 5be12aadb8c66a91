import DBusTransport
import FoundationEssentials
import Glibc
import NotifyCenterTestKit
import SharedDevice
import Synchronization
import TestProviders
import Testing

/// A broker's place on a bus, which keeps when it was told of what.
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

/// The network of a process that has one of its own.
private struct PrivateNetwork {
    private let process: ChildProcess

    init(_ process: ChildProcess) { self.process = process }

    var path: String { "/proc/\(process.identifier)/ns/net" }

    /// Starts a program in it.
    func start(_ program: String, _ arguments: [String]) throws -> ChildProcess {
        try ChildProcess("/usr/bin/nsenter", ["--net=\(path)", program] + arguments)
    }

    /// Runs them in one process, so that they follow each other at once however busy the test's threads are.
    func ip(_ commands: [String]) async throws {
        let script = commands.map { "/usr/sbin/ip \($0)" }.joined(separator: " && ")
        let child = try start("/bin/sh", ["-c", script])
        let status = await child.exitStatus()
        #expect(status == 0, "\(script): \(child.errorText)")
    }
}

/// The way from a device with a network of its own to the tests' provider, which is at 127.0.0.1 of this one: by a second private network, to which a link
/// leads that can be taken down. Nothing of it is in this machine's network.
private final class LinkToProvider: Sendable {
    private let device: PrivateNetwork
    private let relays: [ChildProcess]
    /// Has the second network, and does nothing.
    private let holder: ChildProcess

    /// Hands on what comes in at one end, an address and port or a path, at the other.
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
    ///   - process: the device's.
    ///   - directory: for a socket, which is in no network.
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
    @Test("the broker is told soon, once for all that happens together, and not of what is no way to anywhere")
    func comesBack() async throws {
        let listener = try await Listener()
        let file = listener.directory.path + "/managed-configuration.json"
        let provider = #""oidcIssuer": "https://login.example", "oidcClientID": "a""#
        try #"{"sharedDeviceMode": true, "identity": "oidc", \#(provider)}"#
            .write(toFile: file, atomically: true, encoding: .utf8)
        // A network of the process's own, without any link that works; the bus is a path, which is there all the same.
        let process = try await ChildProcess.service(
            "/usr/bin/unshare",
            [
                "--net", "--", ChildProcess.built("shared-device-identity"), "--bus", listener.bus.address,
                "--configuration", file,
            ]
        )
        defer { process.kill() }
        let network = PrivateNetwork(process)
        // Only this machine itself: no way to anywhere.
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
        // One word in ten seconds: more only where the machine has taken so long.
        #expect(told <= 1 + Int((ContinuousClock.now - begin) / .seconds(10)))
        // A second link is a second way. Told at the end of the pause at the latest.
        try await network.ip([
            "link add way1 type veth peer name far1", "link set far1 up", "address add 10.9.10.7/24 dev way1",
            "link set way1 up",
        ])
        try await eventually("the second word") { listener.kinds.withLock { $0.count } > told }
        #expect(listener.kinds.withLock { $0.allSatisfy { $0 == "networkUp" } })
    }

    @Test(
        "who is signed out at the provider while the device is offline is signed out here when the network is back, long before the next check"
    )
    func signedOutWhileOffline() async throws {
        let fault = "none.offline"
        let device = try await WholeDevice(
            fault: fault,
            // By the clock it would be asked tomorrow.
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
        // It has heard of the link; what follows is not about that.
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
