import Basics
import Cryptography
import DBus
import Foundation
@_spi(Extensions) import NotifyCenterTestKit
import OpenIDConnect
@_spi(Extensions) import SharedDevice
import TestProviders
import Testing

@testable import MicrosoftBroker

/// A device whose users sign in with a provider, with the bridge on it.
final class ProviderDevice: Sendable {
    let bus: PrivateBus
    let directory: TemporaryDirectory
    /// The environment of a client in the desktop session.
    let environment: [String: String]
    private let connection: DBusConnection
    private let programs: [ChildProcess]

    /// - Parameters:
    ///   - scopes: the scopes of the bridge's manifest.
    ///   - hasDisplay: whether the real prompt can ask a user, with Ada at a headless browser.
    init(fault: String, scopes: [String], hasDisplay: Bool = false) async throws {
        let faulty = try await FaultyProvider.shared.value
        bus = try PrivateBus()
        directory = try TemporaryDirectory("provider-bridge")
        let path = directory.path
        try FileManager.default.createDirectory(atPath: "\(path)/apps", withIntermediateDirectories: true)
        try Device.write(
            #"""
            {"sharedDeviceMode": true, "identity": "oidc", "oidcIssuer": "\#(faulty.issuer(fault))", "oidcClientID": "device-7",
            "oidcTrustAnchors": "\#(faulty.trustAnchors)", "microsoftBroker": true}
            """#,
            to: "\(path)/managed.json"
        )
        try Device.write(
            """
            {"id": "\(BrokerContract.application)", "executable": "\(ChildProcess.built("shared-device-microsoft-broker"))",
             "scopes": \(scopes), "microsoftClientIDs": ["\(Device.client)"],
             "microsoftScopes": {"https://graph.microsoft.com/.default": ["openid"]}}
            """,
            to: "\(path)/apps/microsoft.json"
        )
        try Device.write("s&cret +%/", to: "\(path)/oidc-client-secret")
        let arguments = ["--bus", bus.address, "--configuration", "\(path)/managed.json"]
        try FileManager.default.createSymbolicLink(
            atPath: "\(path)/chromium",
            withDestinationPath: "\(FaultyProvider.folder)/faulty-visitor"
        )
        let prompt = try directory.writeScript(
            "prompt",
            """
            echo "$*" >>\(path)/prompts
            exec \(ChildProcess.built("shared-device-sign-in")) "$@" --browser \(path)/chromium \\
              --browser-argument=--ca=\(faulty.trustAnchors)
            """
        )
        environment = [
            "DBUS_SESSION_BUS_ADDRESS": bus.address, "NOTIFY_CENTER_BUS": bus.address,
            "DISPLAY": hasDisplay ? ":9" : "", "WAYLAND_DISPLAY": "", "XDG_DATA_HOME": "\(path)/data",
            "XDG_DATA_DIRS": "\(path)/share",
            "XDG_RUNTIME_DIR": path,
        ]
        programs = [
            try await ChildProcess.service(
                ChildProcess.built("shared-device-broker"),
                arguments + ["--state", "\(path)/state"]
            ),
            try await ChildProcess.service(
                ChildProcess.built("shared-device-identity"),
                arguments,
                environment: ["CREDENTIALS_DIRECTORY": path]
            ),
            try await ChildProcess.service(
                ChildProcess.built("shared-device-microsoft-broker"),
                ["--configuration", "\(path)/managed.json", "--state", "\(path)/bridge", "--sign-in", prompt],
                environment: environment
            ),
        ]
        connection = try DBusConnection.open(bus.bus)
    }

    /// The arguments of each started prompt.
    var prompts: [String] {
        let text = try? String(contentsOfFile: "\(directory.path)/prompts", encoding: .utf8)
        return (text ?? "").split(separator: "\n").map(String.init)
    }

    private func ask(
        _ method: BrokerProtocol.Method,
        _ fields: BrokerProtocol.Fields
    ) async throws -> BrokerProtocol.Fields {
        let request = fields.merging(["application": .string("org.example.prompt")]) { $1 }
        let message = try DBusMessage.methodCall(
            destination: BrokerProtocol.busName,
            path: BrokerProtocol.path,
            interface: BrokerProtocol.interface,
            member: method.rawValue,
            arguments: [.fields(request)]
        )
        return try await connection.call(message).first?.fieldsValue ?? [:]
    }

    func signIn(_ test: TestClient) async throws {
        let begun = try await ask(
            .beginSignIn,
            [
                "methods": .array([.string("browser")], of: "s"), "loginHint": .string("ada"),
                "redirectURI": .string("http://127.0.0.1:8976/callback"),
            ]
        )
        let query = try await test.browse(try #require(begun["authorizationURL"]?.stringValue))
        _ = try await ask(.completeSignIn, ["request": try #require(begun["request"]), "query": .string(query)])
    }

    func signOut() async throws {
        let account = try Account(try await ask(.getCurrentAccount, [:])["account"])
        _ = try await ask(.signOut, ["accountIdentifier": .string(account.identifier)])
    }

    func token(
        by method: String = "acquireTokenSilently",
        scopes: [String] = ["https://graph.microsoft.com/.default"],
        claims: String = "",
        renewing token: String = ""
    ) async throws -> JSONValue {
        let parameters = Device.parameters(scopes: scopes, claims: claims, renewing: token)
        let message = try DBusMessage.methodCall(
            destination: BrokerContract.busName,
            path: BrokerContract.path,
            interface: "com.microsoft.identity.Broker1",
            member: method,
            arguments: [.string("0.0"), .string("c"), .string(parameters.text)]
        )
        let answer = try await DBusConnection.open(bus.bus).call(message, timeout: .seconds(60))
        return try JSONValue(
            parsing: Array((answer.first?.stringValue ?? "").utf8),
            limits: JSONLimits(size: 1 << 20)
        )
    }
}

@Suite("Microsoft's clients with the organisation's provider")
struct ProviderBridgeTests {
    @Test("a client gets the provider's tokens for four minutes, with its scope names")
    func token() async throws {
        let device = try await ProviderDevice(fault: "bridge", scopes: ["openid", "profile"])
        let test = try await FaultyProvider.shared.value.client("bridge")
        try await device.signIn(test)
        let response = try #require(try await device.token()["brokerTokenResponse"])
        #expect(response["error"] == nil, "\(response["error"]?["context"]?.string ?? "")")
        let identity = try #require(response["idToken"]?.string)
        // The provider's keys verify it.
        let verified = try await test.client.verify(identity)
        #expect(verified.claims["preferred_username"]?.string == "ada@example.com")
        #expect(response["account"]?["username"]?.string == "ada@example.com")
        #expect(response["grantedScopes"]?.string == "https://graph.microsoft.com/.default")
        let left = (response["expiresOn"]?.number ?? 0) / 1000 - Date().timeIntervalSince1970
        #expect(left > 0 && left <= 240)
        // An interactive request gets a token too, although there is no display.
        let asking = try #require(try await device.token(by: "acquireTokenInteractively")["brokerTokenResponse"])
        #expect(asking["error"] == nil, "\(asking["error"]?["context"]?.string ?? "")")
        let token = try #require(asking["accessToken"]?.string)
        #expect(try await test.page("secrets").contains("access-token \(token)"))
        #expect(asking["account"]?["username"]?.string == "ada@example.com")
    }

    @Test("a renewing client gets a new token, and a client that needs claims gets none")
    func freshness() async throws {
        let device = try await ProviderDevice(fault: "bridge.fresh", scopes: ["openid", "profile"])
        try await device.signIn(try await FaultyProvider.shared.value.client("bridge.fresh"))
        func accessToken(claims: String = "", renewing token: String = "") async throws -> String? {
            let answer = try await device.token(claims: claims, renewing: token)
            return answer["brokerTokenResponse"]?["accessToken"]?.string
        }
        let first = try #require(try await accessToken())
        #expect(try await accessToken(claims: #"{"access_token":{"xms_cc":{"values":["cp1"]}}}"#) == first)
        let renewed = try #require(try await accessToken(renewing: first))
        #expect(renewed != first)
        #expect(try await accessToken() == renewed)
        let challenge = #"{"access_token":{"nbf":{"essential":true,"value":"1800000000"}}}"#
        for method in ["acquireTokenSilently", "acquireTokenInteractively"] {
            let answer = try await device.token(by: method, claims: challenge)
            #expect(answer.status == 9 && answer.context.contains("claims"), "\(method): \(answer.text)")
        }
    }

    @Test("without a session the user is asked at the provider for the client's scopes")
    func asksAPerson() async throws {
        // This provider later grants only the scopes of the sign-in.
        let device = try await ProviderDevice(
            fault: "strict-scopes.bridge",
            scopes: ["openid", "profile", "email", "orders.read"],
            hasDisplay: true
        )
        let answer = try await device.token(by: "acquireTokenInteractively", scopes: ["orders.read"])
        let response = try #require(answer["brokerTokenResponse"])
        #expect(response["error"] == nil, "\(answer.context)")
        #expect(response["account"]?["username"]?.string == "ada@example.com")
        #expect(response["grantedScopes"]?.string == "orders.read")
        #expect(device.prompts.count == 1 && device.prompts.first?.contains("--scope=orders.read") == true)
        // No browser profile is left that could sign in the next user.
        let leftovers = try FileManager.default.contentsOfDirectory(atPath: device.directory.path + "/sign-in")
        #expect(leftovers.isEmpty, "\(leftovers)")
        // The client gets a token for the same scopes without another prompt.
        let silent = try await device.token(scopes: ["orders.read"])
        #expect(silent["brokerTokenResponse"]?["accessToken"]?.string != nil, "\(silent.context)")
        #expect(device.prompts.count == 1)
    }

    @Test(
        "a failed sign-in is attempted once, and the client gets the reason",
        arguments: [
            ("discovery-unavailable.bridge", 3.0, "responds with something unusable: status 503"),
            ("authorize-error-access-denied.bridge", 7, "cancelled"),
        ]
    )
    func asksOnce(fault: String, status: Double, words: String) async throws {
        let device = try await ProviderDevice(fault: fault, scopes: ["openid", "profile"], hasDisplay: true)
        let answer = try await device.token(by: "acquireTokenInteractively")
        #expect(answer.status == status && answer.context.contains(words), "\(answer.text)")
        #expect(device.prompts.count == 1)
    }

    @Test("a provider that grants too few scopes has status 9 and the missing scope")
    func declined() async throws {
        let fault = "fewer-scopes.bridge"
        let device = try await ProviderDevice(fault: fault, scopes: ["openid", "profile", "orders.read"])
        try await device.signIn(try await FaultyProvider.shared.value.client(fault))
        let answer = try await device.token(scopes: ["orders.read"])
        #expect(answer.status == 9 && answer.context.contains("orders.read"), "\(answer.text)")
    }

    @Test("a provider that wants a new sign-in has status 13 until the user signs in")
    func personWanted() async throws {
        let fault = "refresh-token-invalid-sub.bridge"
        let device = try await ProviderDevice(fault: fault, scopes: ["openid", "profile", "orders.read"])
        let test = try await FaultyProvider.shared.value.client(fault)
        try await device.signIn(test)
        // The sign-in's own token lacks this scope. The provider is asked, and its response is about another user.
        let first = try await device.token(scopes: ["orders.read"])
        #expect(first.status == 13 && first.context.contains("sign in again"), "\(first.text)")
        // From then on no request gets a token, whatever its scopes.
        #expect(try await device.token().status == 13)
        let asking = try await device.token(by: "acquireTokenInteractively")
        #expect(asking.status == 9 && asking.context.contains("no display"), "\(asking.text)")
        try await device.signIn(test)
        #expect(try await device.token()["brokerTokenResponse"]?["accessToken"]?.string != nil)
    }

    @Test("an unreachable provider has status 3 for new tokens, also interactively")
    func providerAway() async throws {
        let fault = "refresh-html.bridge"
        let device = try await ProviderDevice(fault: fault, scopes: ["openid", "profile", "orders.read"])
        try await device.signIn(try await FaultyProvider.shared.value.client(fault))
        for method in ["acquireTokenSilently", "acquireTokenInteractively"] {
            let answer = try await device.token(by: method, scopes: ["orders.read"])
            #expect(
                answer.status == 3 && answer.context.contains("responds with something unusable"),
                "\(method): \(answer.text)"
            )
        }
        // A cached token is still served.
        #expect(try await device.token()["brokerTokenResponse"]?["accessToken"]?.string != nil)
    }

    @Test("a bridge whose manifest lacks the ID token's scopes tells what to add")
    func rights() async throws {
        let device = try await ProviderDevice(fault: "bridge.rights", scopes: ["openid"])
        try await device.signIn(try await FaultyProvider.shared.value.client("bridge.rights"))
        let answer = try await device.token()
        #expect(answer.status == 9 && answer.context.contains("profile"), "\(answer.context)")
    }
}
