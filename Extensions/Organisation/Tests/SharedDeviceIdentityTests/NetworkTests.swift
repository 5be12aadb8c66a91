import Basics
import DBus
import FoundationEssentials
import Glibc
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import TestProviders
import Testing

/// Starts a program in the network namespace of a process.
private func start(_ words: [String], in process: ChildProcess) throws -> ChildProcess {
    try ChildProcess("/usr/bin/nsenter", ["--net=/proc/\(process.identifier)/ns/net"] + words)
}

/// Runs commands of ip(8) in the network namespace of a process. One process runs all, so that they follow each other
/// immediately even if the test's threads are busy.
private func ip(_ commands: [String], in process: ChildProcess) async throws {
    let script = commands.map { "/usr/sbin/ip \($0)" }.joined(separator: " && ")
    let child = try start(["/bin/sh", "-c", script], in: process)
    #expect(await child.exitStatus() == 0, "\(script): \(child.errorText)")
}

/// Connects a device in a network namespace to the tests' provider at 127.0.0.1 of the machine, through a second
/// namespace and a link that can be taken down. The machine's own network is not changed.
private final class LinkToProvider: Sendable {
    private let device: ChildProcess
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
    ///   - device: the device's process.
    ///   - directory: for a Unix socket, which belongs to no network namespace.
    init(_ device: ChildProcess, port: UInt16, directory: String) async throws {
        self.device = device
        holder = try ChildProcess("/usr/bin/unshare", ["--net", "--", "/bin/sh", "-c", "echo ready; exec sleep 1000"])
        try await holder.line { $0 == "ready" }
        let link = "link add way0 type veth peer name far0 netns \(holder.identifier)"
        try await ip(["link set lo up", link, "address add 10.9.9.7/24 dev way0"], in: device)
        try await ip(["address add 10.9.9.1/24 dev far0", "link set far0 up"], in: holder)
        let (program, socket) = (["/usr/bin/python3", "-c", Self.relay], directory + "/provider.socket")
        relays = [
            try ChildProcess(program[0], program.dropFirst() + [socket, "127.0.0.1:\(port)"]),
            try start(program + ["10.9.9.1:4430", socket], in: holder),
            try start(program + ["127.0.0.1:\(port)", "10.9.9.1:4430"], in: device),
        ]
        for relay in relays { try await relay.line { $0 == "ready" } }
    }

    func up() async throws {
        try await ip(["link set way0 up", "route add default via 10.9.9.1 dev way0"], in: device)
    }

    func down() async throws { try await ip(["link set way0 down"], in: device) }
}

@Suite(
    "The network's coming back",
    .enabled(
        if: geteuid() == 0 && access("/usr/sbin/ip", X_OK) == 0 && access("/usr/bin/unshare", X_OK) == 0,
        "only root can make a network namespace, by ip and unshare"
    )
)
struct NetworkTests {
    @Test("the broker is told soon, once per burst of changes, and only of usable routes")
    func comesBack() async throws {
        let bus = try PrivateBus()
        let directory = try TemporaryDirectory("network")
        let broker = try DBusConnection.open(bus.bus)
        let recorder = try EventRecorder(broker)
        try await broker.requestName(BrokerProtocol.busName)
        func kinds() -> [String] { recorder.events.compactMap { $0["kind"] } }
        let file = directory.path + "/managed-configuration.json"
        try IdentityDevice.configure(directory.path, issuer: "https://login.example")
        // A network namespace without a working link. The bus address is a path, which works in any namespace.
        let process = try await ChildProcess.service(
            "/usr/bin/unshare",
            [
                "--net", "--", ChildProcess.built("shared-device-identity"), "--bus", bus.address,
                "--configuration", file,
            ]
        )
        defer { process.kill() }
        // A link that leads only to this machine is no route.
        let local = [
            "link set lo up", "link add way0 type veth peer name far0", "link set far0 up",
            "address add 10.9.9.7/24 dev way0",
        ]
        try await ip(local, in: process)
        let up = ["link set way0 up", "route add default via 10.9.9.1 dev way0"]
        let begin = ContinuousClock.now
        try await ip((1...5).flatMap { _ in up + ["link set way0 down"] } + up, in: process)
        let start = ContinuousClock.now
        try await eventually("the broker is told") { !kinds().isEmpty }
        #expect(ContinuousClock.now - start < .seconds(60))
        let told = kinds().count
        // One event in ten seconds. More are permitted only if the machine took that long.
        #expect(told <= 1 + Int((ContinuousClock.now - begin) / .seconds(10)))
        // A second link is a second route. It is reported when the pause has ended, if not earlier.
        let second = [
            "link add way1 type veth peer name far1", "link set far1 up", "address add 10.9.10.7/24 dev way1",
            "link set way1 up",
        ]
        try await ip(second, in: process)
        try await eventually("the broker is told again") { kinds().count > told }
        #expect(kinds().allSatisfy { $0 == "networkUp" })
        withExtendedLifetime((bus, directory)) {}
    }

    @Test("a user signed out remotely while offline is signed out when the network returns")
    func signedOutWhileOffline() async throws {
        let device = try await WholeDevice(
            fault: "none.offline",
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
        // The service has reported by now that the link is up. The rest of the test is about the second time that it
        // comes up.
        try await eventually("the provider can be reached") { (try? await device.signIn()) != nil }
        _ = try await device.token()
        try await link.down()
        _ = try await device.test.page("sign-everybody-out")
        let error = await #expect(throws: SharedDeviceError.self) { try await device.token() }
        #expect(error?.code == .providerUnavailable, "\(String(describing: error))")
        #expect(try await device.account()?.username == "ada@example.com")
        try await link.up()
        try await eventually("Ada's sign-out") { try await device.account() == nil }
        #expect(try await device.call(.getCurrentAccount)["account"] == nil)
    }
}
