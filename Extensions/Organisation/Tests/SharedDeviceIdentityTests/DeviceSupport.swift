import DBus
import FoundationEssentials
import Identity
@_spi(Extensions) import NotifyCenterTestKit
import OpenIDConnect
@_spi(Extensions) import SharedDevice
import TestProviders

/// A bus with `shared-device-identity`, on which the test acts as the broker.
final class IdentityDevice: Sendable {
    let bus: PrivateBus
    let directory: TemporaryDirectory
    let broker: DBusConnection
    let provider: RemoteProvider
    let process: ChildProcess
    /// A client and a browser of the provider with the device's fault.
    let test: TestClient

    /// - Parameters:
    ///   - issuer: the provider; `nil` for a device without one.
    ///   - more: further members of the managed configuration, each preceded by a comma.
    ///   - passed: the path of a listening socket that the process inherits, as from a service manager.
    ///   - wrapper: the words of a command that starts the program.
    init(
        issuer: String?,
        fault: String = "none",
        secret: String = FaultyProvider.secret,
        trustAnchors: String? = nil,
        more: String = "",
        passed: String? = nil,
        wrapper: [String] = []
    ) async throws {
        test = try await FaultyProvider.client(fault)
        bus = try PrivateBus()
        directory = try TemporaryDirectory("shared-device-identity")
        try Self.configure(directory.path, issuer: issuer, trustAnchors: trustAnchors, more: more)
        try (secret + "\n").write(toFile: directory.path + "/oidc-client-secret", atomically: true, encoding: .utf8)
        broker = try DBusConnection.open(bus.bus)
        try await broker.requestName(BrokerProtocol.busName)
        provider = RemoteProvider(connection: broker)
        process = try await Self.start(bus, directory, passed: passed, wrapper: wrapper)
    }

    convenience init(
        fault: String,
        secret: String = FaultyProvider.secret,
        more: String = "",
        passed: String? = nil,
        wrapper: [String] = []
    ) async throws {
        let faulty = try await FaultyProvider.shared.value
        try await self.init(
            issuer: faulty.issuer(fault),
            fault: fault,
            secret: secret,
            trustAnchors: faulty.trustAnchors,
            more: more,
            passed: passed,
            wrapper: wrapper
        )
    }

    /// The steps of a service manager between fork and exec (sd_listen_fds(3)).
    private static let passing = """
        import os, socket, sys
        door = socket.socket(socket.AF_UNIX)
        if os.path.exists(sys.argv[1]):
            os.unlink(sys.argv[1])  # Of an attempt before this one.
        door.bind(sys.argv[1])
        door.listen()
        os.dup2(door.fileno(), 3)
        os.set_inheritable(3, True)
        os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
        os.execv(sys.argv[2], sys.argv[2:])
        """

    /// Starts the process, and waits until it is ready.
    ///
    /// - Parameters:
    ///   - environment: further variables.
    ///   - passed: the path of a socket that the process gets as descriptor 3.
    ///   - wrapper: the words of a command that starts the program.
    static func start(
        _ bus: PrivateBus,
        _ directory: TemporaryDirectory,
        environment: [String: String] = [:],
        passed: String? = nil,
        wrapper: [String] = []
    ) async throws -> ChildProcess {
        var command = [
            ChildProcess.built("shared-device-identity"), "--bus", bus.address, "--configuration",
            directory.path + "/managed-configuration.json",
        ]
        if let passed { command = ["/usr/bin/python3", "-c", Self.passing, passed] + command }
        command = wrapper + command
        return try await ChildProcess.service(
            command[0],
            Array(command.dropFirst()),
            environment: environment.merging(["CREDENTIALS_DIRECTORY": directory.path]) { $1 }
        )
    }

    /// Rewrites the configuration.
    ///
    /// - Parameter issuer: the provider; `nil` for the one with the device's fault.
    func configure(issuer: String? = nil, more: String = "") async throws {
        let anchors = try await FaultyProvider.shared.value.trustAnchors
        let issuer = issuer ?? test.client.issuer.text
        try Self.configure(directory.path, issuer: issuer, trustAnchors: anchors, more: more)
    }

    static func configure(_ path: String, issuer: String?, trustAnchors: String? = nil, more: String = "") throws {
        let provider =
            issuer.map {
                #", "identity": "oidc", "oidcIssuer": "\#($0)", "oidcClientID": "device-7", "oidcScopes": ["openid"]"#
            } ?? ""
        let anchors = trustAnchors.map { #", "oidcTrustAnchors": "\#($0)""# } ?? ""
        try #"{"sharedDeviceMode": true\#(provider)\#(anchors)\#(more)}"#
            .write(toFile: path + "/managed-configuration.json", atomically: true, encoding: .utf8)
    }

    /// Signs Ada in with her browser.
    func signIn() async throws -> ProviderSignIn { try await provider.signIn(browse: test.browse) }

    /// Sends a call of the protocol without a typed wrapper.
    func call(
        _ method: String,
        _ fields: IdentityFields,
        on connection: DBusConnection
    ) async throws(DBusError) -> [DBusValue] {
        try await connection.call(
            .methodCall(
                destination: IdentityProtocol.busName,
                path: IdentityProtocol.path,
                interface: IdentityProtocol.interface,
                member: method,
                arguments: [.fields(fields)]
            )
        )
    }
}
