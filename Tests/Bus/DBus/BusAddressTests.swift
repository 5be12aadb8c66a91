import FoundationEssentials
import Glibc
@_spi(Extensions) import NotifyCenterTestKit
import Testing

@Suite("Processes that reach a bus by different addresses")
struct BusAddressTests {
    struct Way: Sendable, CustomTestStringConvertible {
        let name: String
        /// “ADDRESS” and “DIRECTORY” stand for the bus's address and the directory of its socket.
        let address: String
        var environment: [String: String] = [:]
        /// The command that runs the probe.
        var command: [String] = []
        /// Parts of the error; none if the process connects.
        var errors: [String] = []
        /// A program without which the way cannot be tested.
        var needs: String?
        var needsRoot = false
        var needsNamespace = false

        var testDescription: String { name }
        var isPossible: Bool {
            (needs.map { access($0, X_OK) == 0 } ?? true) && (!needsRoot || geteuid() == 0)
                && (!needsNamespace || BusAddressTests.hasNamespaces)
        }
    }

    private static let bridge = "/usr/bin/systemd-stdio-bridge"
    private static let asOther = ["setpriv"] + ChildProcess.identity(65534)
    private static let namespace = ["unshare", "--user", "--map-current-user"]
    /// A container may forbid user namespaces.
    fileprivate static let hasNamespaces: Bool = {
        let child = try? ChildProcess("setpriv", ChildProcess.identity(65534) + namespace + ["true"])
        return child?.waitUntilExit() == 0
    }()
    private static let ways = [
        Way(name: "a path", address: "unix:path=DIRECTORY/bus"),
        Way(name: "a path with an escaped byte", address: "unix:path=DIRECTORY/%62us"),
        Way(name: "the second of two addresses", address: "unix:path=/nonexistent;ADDRESS"),
        Way(name: "an address beside autolaunch:", address: "autolaunch:;ADDRESS"),
        Way(name: "autolaunch: alone", address: "autolaunch:", errors: ["run the program under dbus-run-session"]),
        Way(
            name: "the runtime directory",
            address: "session",
            environment: ["XDG_RUNTIME_DIR": "DIRECTORY", "DBUS_SESSION_BUS_ADDRESS": ""]
        ),
        Way(name: "a program in between", address: "unixexec:path=\(bridge),argv1=-pESCAPED", needs: bridge),
        Way(
            name: "dbus-run-session",
            address: "session",
            command: ["dbus-run-session", "--"],
            needs: "/usr/bin/dbus-run-session"
        ),
        Way(name: "another user", address: "ADDRESS", command: asOther, needsRoot: true),
        Way(
            name: "a user namespace that keeps the user",
            address: "ADDRESS",
            command: asOther + namespace,
            needsRoot: true,
            needsNamespace: true
        ),
        Way(
            name: "a user namespace that changes the user",
            address: "ADDRESS",
            command: asOther + ["unshare", "--user", "--map-root-user"],
            errors: ["this process is in a user namespace", "--map-current-user"],
            needsRoot: true
        ),
    ]

    @Test("a process connects by each kind of address", arguments: ways.filter(\.isPossible))
    func connect(by way: Way) async throws {
        var options = PrivateBus.Options()
        options.admitsOtherUsers = way.needsRoot
        let bus = try PrivateBus(options)
        let directory = String(bus.address.dropFirst("unix:path=".count).dropLast("/bus".count))
        let escaped = bus.address.replacing(":", with: "%3a").replacing("=", with: "%3d")
        func named(_ text: String) -> String {
            text.replacing("ESCAPED", with: escaped).replacing("ADDRESS", with: bus.address)
                .replacing("DIRECTORY", with: directory)
        }
        let command = way.command + [ChildProcess.built("bus-probe"), named(way.address), "connect", "1"]
        let environment = way.environment.mapValues { named($0) }
        let probe = try ChildProcess(command[0], Array(command.dropFirst()), environment: environment)
        let said = try await probe.line { _ in true }
        #expect(way.errors.isEmpty ? said == "connected" : way.errors.allSatisfy { said.contains($0) }, "\(said)")
        withExtendedLifetime(bus) {}
    }

    @Test("a process connects to an abstract socket", .ofDaemon("systemd passes dbus-broker its only socket"))
    func abstractSocket() async throws {
        let directory = try TemporaryDirectory("abstract-bus")
        let address = "unix:abstract=\(directory.path)/bus"
        var options = PrivateBus.Options()
        options.configurationFiles = ["\(directory.path)/abstract.conf"]
        try "<busconfig><listen>\(address)</listen></busconfig>"
            .write(toFile: options.configurationFiles[0], atomically: true, encoding: .utf8)
        let bus = try PrivateBus(options)
        let probe = try ChildProcess(ChildProcess.built("bus-probe"), [address, "connect", "1"])
        let said = try await probe.line { _ in true }
        #expect(said == "connected")
        withExtendedLifetime(bus) {}
    }
}
