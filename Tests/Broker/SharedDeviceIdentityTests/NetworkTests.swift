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
        let process = try ChildProcess(
            "/usr/bin/unshare",
            [
                "--net", "--", ChildProcess.built("shared-device-identity"), "--bus", listener.bus.address,
                "--configuration", file,
            ]
        )
        defer { process.kill() }
        _ = try await process.line { $0 == "ready" }
        // unshare becomes the program, and keeps its number.
        func ip(_ command: String) async throws {
            let words = command.split(separator: " ").map(String.init)
            let child = try ChildProcess(
                "/usr/bin/nsenter",
                ["--net=/proc/\(process.identifier)/ns/net", "/usr/sbin/ip"] + words
            )
            let status = await child.exitStatus()
            #expect(status == 0, "ip \(command): \(child.errorText)")
        }
        // Only this machine itself: no way to anywhere.
        try await ip("link set lo up")
        try await ip("link add way0 type veth peer name far0")
        try await ip("link set far0 up")
        try await ip("address add 10.9.9.7/24 dev way0")
        let start = ContinuousClock.now
        for _ in 1...5 {
            try await ip("link set way0 up")
            try await ip("route add default via 10.9.9.1 dev way0")
            try await ip("link set way0 down")
        }
        try await ip("link set way0 up")
        try await ip("route add default via 10.9.9.1 dev way0")
        try await eventually("the word to the broker") { !listener.kinds.withLock { $0.isEmpty } }
        #expect(ContinuousClock.now - start < .seconds(60))
        #expect(listener.kinds.withLock { $0 } == ["networkUp"])
        // A second link is a second way. Told at the end of the pause at the latest.
        try await ip("link add way1 type veth peer name far1")
        try await ip("link set far1 up")
        try await ip("address add 10.9.10.7/24 dev way1")
        try await ip("link set way1 up")
        try await eventually("the second word") { listener.kinds.withLock { $0.count } == 2 }
        #expect(listener.kinds.withLock { $0 } == ["networkUp", "networkUp"])
    }
}
