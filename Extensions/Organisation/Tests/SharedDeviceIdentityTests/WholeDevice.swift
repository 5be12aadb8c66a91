import Basics
import DBus
import FoundationEssentials
import Glibc
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import Synchronization
import TestProviders
import Testing

/// A bus with the broker, the identity service and a prompt.
final class WholeDevice: Sendable {
    let port: UInt16
    let bus: PrivateBus
    let directory: TemporaryDirectory
    private let prompt: DBusConnection
    private let processes = Locked<[Program: ChildProcess]>([:])
    /// The error output of processes that have ended.
    private let earlier = Locked<[String]>([])
    private let isApart: Bool
    let app: SharedDeviceApplication
    /// A client and a browser of the provider with the device's fault.
    let test: TestClient

    enum Program: String, Sendable, CaseIterable {
        case broker = "shared-device-broker"
        case identity = "shared-device-identity"
    }

    convenience init(
        fault: String,
        more: String = "",
        scopes: [String] = ["openid", "profile"],
        manifests: [String] = [],
        isApart: Bool = false
    ) async throws {
        let faulty = try await FaultyProvider.shared.value
        try await self.init(
            issuer: faulty.issuer(fault),
            fault: fault,
            more: #", "oidcTrustAnchors": "\#(faulty.trustAnchors)""# + more,
            scopes: scopes,
            manifests: manifests,
            isApart: isApart
        )
    }

    /// - Parameters:
    ///   - secret: the client secret.
    ///   - more: further members of the managed configuration, each preceded by a comma.
    ///   - scopes: the scopes in the app's manifest.
    ///   - manifests: the manifests of further apps.
    ///   - isApart: whether the identity service has its own network namespace, without a working link.
    init(
        issuer: String,
        fault: String = "none",
        secret: String = FaultyProvider.secret,
        more: String = "",
        scopes: [String] = ["openid", "profile"],
        manifests: [String] = [],
        isApart: Bool = false
    ) async throws {
        self.isApart = isApart
        test = try await FaultyProvider.client(fault)
        bus = try PrivateBus()
        directory = try TemporaryDirectory("whole-device")
        port = try freePort()
        let path = directory.path
        // The secrets are outside the directory that is searched for secrets.
        for folder in ["secrets", "apps"] {
            try FileManager.default.createDirectory(atPath: "\(path)/\(folder)", withIntermediateDirectories: false)
        }
        let program = try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")
        let own = #"{"id": "org.example.app", "executable": "\#(program)", "scopes": \#(scopes)}"#
        let apps = ([own] + manifests).enumerated().map { ("apps/\($0.offset).json", $0.element) }
        let configuration = #"""
            {"sharedDeviceMode": true, "identity": "oidc", "oidcIssuer": "\#(issuer)", "oidcClientID": "device-7",
            "backChannelLogout": "127.0.0.1:\#(port)"\#(more)}
            """#
        let files = [("managed-configuration.json", configuration), ("secrets/oidc-client-secret", secret)]
        for (name, text) in files + apps {
            try text.write(toFile: "\(path)/\(name)", atomically: true, encoding: .utf8)
        }
        try Data((0..<32).map { _ in UInt8.random(in: .min ... .max) })
            .write(to: URL(filePath: path + "/secrets/token-key"))
        prompt = try DBusConnection.open(bus.bus)
        app = SharedDeviceApplication(
            identifier: "org.example.app",
            bus: bus.bus,
            stateDirectory: directory.path + "/app"
        )
        for program in Program.allCases { try await start(program) }
    }

    var state: String { directory.path + "/state" }

    /// The error output of all processes, including ended processes.
    var log: String {
        (earlier.withLock { $0 } + processes.withLock { $0.values.map(\.errorText) }).joined(separator: "\n")
    }

    func process(_ program: Program) throws -> ChildProcess { try #require(processes.withLock { $0[program] }) }

    /// Starts a program, and waits until it is ready.
    func start(_ program: Program) async throws {
        var arguments = ["--bus", bus.address, "--configuration", directory.path + "/managed-configuration.json"]
        if program == .broker { arguments += ["--state", state] }
        // unshare executes the program in place, so the process ID stays the same.
        let isApart = isApart && program == .identity
        let words = (isApart ? ["/usr/bin/unshare", "--net", "--"] : []) + [ChildProcess.built(program.rawValue)]
        let process = try await ChildProcess.service(
            words[0],
            words.dropFirst() + arguments,
            environment: ["CREDENTIALS_DIRECTORY": directory.path + "/secrets"]
        )
        processes.withLock { $0[program] = process }
    }

    /// Ends a program by a signal: as a crash does, or as systemd does. Returns when the program has ended.
    func kill(_ program: Program, by signal: Int32 = SIGKILL) async throws {
        let process = try process(program)
        process.send(signal)
        _ = await process.exitStatus()
        earlier.withLock { $0.append(process.errorText) }
    }

    func call(
        _ method: BrokerProtocol.Method,
        _ fields: BrokerProtocol.Fields = [:]
    ) async throws -> BrokerProtocol.Fields {
        let request = fields.merging(["application": .string("org.example.prompt")]) { $1 }
        let message = try DBusMessage.methodCall(
            destination: BrokerProtocol.busName,
            path: BrokerProtocol.path,
            interface: BrokerProtocol.interface,
            member: method.rawValue,
            arguments: method == .getDeviceInformation ? [] : [.fields(request)]
        )
        return try await prompt.call(message).first?.fieldsValue ?? [:]
    }

    func account() async throws -> Account? { try? Account(try await call(.getCurrentAccount)["account"]) }

    func epoch() async throws -> UInt64? { try await call(.getCurrentAccount)["epoch"]?.unsignedValue }

    /// Whether the user must reauthenticate before apps get new tokens.
    func needsSignIn() async throws -> Bool {
        try await call(.getDeviceInformation)["needsSignIn"]?.booleanValue == true
    }

    func token() async throws(SharedDeviceError) -> String { try await token(["profile"]).accessToken }

    func token(_ scopes: [String]) async throws(SharedDeviceError) -> TokenResult {
        guard let account = try await app.getCurrentAccount().current else {
            throw SharedDeviceError(.noCurrentAccount, attempted: "get a token", message: "no account is signed in")
        }
        let parameters = SilentTokenParameters(scopes: scopes, account: account, forceRefresh: true)
        return try await app.acquireTokenSilent(with: parameters)
    }

    /// Signs a user in through the provider's page.
    ///
    /// - Parameters:
    ///   - name: the user.
    ///   - scopes: the scopes that the prompt requests.
    func signIn(as name: String = "ada", scopes: [String] = []) async throws {
        let begun = try await call(
            .beginSignIn,
            [
                "methods": .array([.string("browser")], of: "s"), "redirectURI": .string(testRedirect),
                "loginHint": .string(name), "scopes": .array(scopes.map(DBusValue.string), of: "s"),
            ]
        )
        let query = try await test.browse(try #require(begun["authorizationURL"]?.stringValue))
        let request = try #require(begun["request"])
        _ = try await call(.completeSignIn, ["request": request, "query": .string(query)])
    }

    func signOut() async throws {
        let ada = try #require(try await account())
        _ = try await call(.signOut, ["accountIdentifier": .string(ada.identifier)])
    }

    /// Signs Ada in with a code that she enters on another device.
    func signInByCode() async throws {
        let begun = try await call(.beginSignIn, ["methods": .array([.string("deviceCode")], of: "s")])
        let request = try #require(begun["request"])
        repeat {
            let answer = try await call(.awaitSignIn, ["request": request, "wait": .double(60)])
            if answer["username"] != nil { return }
        } while true
    }

    /// Sends a logout token to the device as the provider does.
    ///
    /// - Returns: the whole response.
    func report(logout token: String) async throws -> String {
        try await exchange(LogoutDevice.request("logout_token=\(token)"), port: port)
    }

    /// Starts the prompt in a separate session, with the given program as its browser.
    ///
    /// - Parameters:
    ///   - arguments: the arguments of the browser.
    ///   - more: further arguments of the prompt.
    func prompt(_ browser: String, _ arguments: [String] = [], _ more: [String] = []) throws -> ChildProcess {
        try FileManager.default.createDirectory(
            atPath: session,
            withIntermediateDirectories: true,
            attributes: [.posixPermissions: 0o700]
        )
        return try ChildProcess(
            ChildProcess.built("shared-device-sign-in"),
            ["--bus", bus.address, "--page", "--json", "--browser", browser]
                + arguments.map { "--browser-argument=\($0)" } + more,
            environment: ["XDG_RUNTIME_DIR": session, "DISPLAY": ":9"]
        )
    }

    var session: String { directory.path + "/session" }
}
