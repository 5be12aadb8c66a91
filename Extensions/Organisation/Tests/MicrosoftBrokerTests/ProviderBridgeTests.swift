import Basics
import Cryptography
import Foundation
@_spi(Extensions) import NotifyCenterTestKit
import OpenIDConnect
import TestProviders
import Testing

@testable import MicrosoftBroker

/// A device whose users sign in with a provider, with the bridge on it.
final class ProviderDevice: Sendable {
    let device: WholeDevice
    /// The environment of a client in the desktop session.
    let environment: [String: String]
    private let bridge: ChildProcess

    /// - Parameters:
    ///   - scopes: the scopes of the bridge's manifest.
    ///   - hasDisplay: whether the real prompt can ask a user, with Ada at a headless browser.
    init(fault: String, scopes: [String] = ["openid", "profile"], hasDisplay: Bool = false) async throws {
        let faulty = try await FaultyProvider.shared.value
        device = try await WholeDevice(
            fault: fault,
            more: #", "microsoftBroker": true"#,
            manifests: [Device.manifest(scopes: scopes, replacement: ["openid"])]
        )
        let path = device.directory.path
        try FileManager.default.createSymbolicLink(
            atPath: "\(path)/chromium",
            withDestinationPath: "\(FaultyProvider.folder)/faulty-visitor"
        )
        let prompt = try device.directory.writeScript(
            "prompt",
            """
            echo "$* $SHARED_DEVICE_CLAIMS" >>\(path)/prompts
            exec \(ChildProcess.built("shared-device-sign-in")) "$@" --browser \(path)/chromium \\
              --browser-argument=--ca=\(faulty.trustAnchors)
            """
        )
        environment = Device.environment(device.bus, device.directory, display: hasDisplay ? ":9" : "")
        let configuration = ["--configuration", "\(path)/managed-configuration.json", "--state", "\(path)/bridge"]
        bridge = try await ChildProcess.service(
            Device.program,
            configuration + ["--sign-in", prompt],
            environment: environment
        )
    }

    /// The arguments of each started prompt.
    var prompts: [String] {
        let text = try? String(contentsOfFile: "\(device.directory.path)/prompts", encoding: .utf8)
        return (text ?? "").split(separator: "\n").map(String.init)
    }

    func signIn() async throws { try await device.signIn() }

    func token(
        by method: String = "acquireTokenSilently",
        scopes: [String] = [Device.scope],
        claims: String = "",
        renewing token: String = ""
    ) async throws -> JSONValue {
        let parameters = Device.parameters(scopes: scopes, claims: claims, renewing: token)
        return try await callBridge(device.bus, method, parameters.text)
    }
}

@Suite("Microsoft's clients with the organisation's provider")
struct ProviderBridgeTests {
    @Test("a client gets tokens for four minutes, a renewed one, and none with claims")
    func token() async throws {
        let device = try await ProviderDevice(fault: "bridge")
        try await device.signIn()
        let response = try #require(try await device.token()["brokerTokenResponse"])
        #expect(response["error"] == nil, "\(response["error"]?["context"]?.string ?? "")")
        let identity = try #require(response["idToken"]?.string)
        // The provider's keys verify it.
        let verified = try await device.device.test.client.verify(identity)
        #expect(verified.claims["preferred_username"]?.string == "ada@example.com")
        #expect(response["account"]?["username"]?.string == "ada@example.com")
        #expect(response["grantedScopes"]?.string == "https://graph.microsoft.com/.default")
        let left = (response["expiresOn"]?.number ?? 0) / 1000 - Date().timeIntervalSince1970
        #expect(left > 0 && left <= 240)
        // An interactive request gets a token too, although there is no display.
        let asking = try #require(try await device.token(by: "acquireTokenInteractively")["brokerTokenResponse"])
        #expect(asking["error"] == nil, "\(asking["error"]?["context"]?.string ?? "")")
        let token = try #require(asking["accessToken"]?.string)
        #expect(try await device.device.test.page("secrets").contains("access-token \(token)"))
        #expect(asking["account"]?["username"]?.string == "ada@example.com")
        func accessToken(claims: String = "", renewing token: String = "") async throws -> String? {
            let answer = try await device.token(claims: claims, renewing: token)
            return answer["brokerTokenResponse"]?["accessToken"]?.string
        }
        let first = try #require(try await accessToken())
        #expect(try await accessToken(claims: #"{"access_token":{"xms_cc":{"values":["cp1"]}}}"#) == first)
        let renewed = try #require(try await accessToken(renewing: first))
        #expect(renewed != first)
        #expect(try await accessToken() == renewed)
        // A client that needs claims has to ask the user.
        let challenge = #"{"access_token":{"nbf":{"essential":true,"value":"1800000000"}}}"#
        let answer = try await device.token(claims: challenge)
        #expect(answer.status == 2 && answer.context.contains("claims"), "\(answer.text)")
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
        let folder = device.device.directory.path + "/sign-in"
        let leftovers = try FileManager.default.contentsOfDirectory(atPath: folder)
        #expect(leftovers.isEmpty, "\(leftovers)")
        // The client gets a token for the same scopes without another prompt.
        let silent = try await device.token(scopes: ["orders.read"])
        let token = try #require(silent["brokerTokenResponse"]?["accessToken"]?.string, "\(silent.context)")
        #expect(device.prompts.count == 1)
        // For a claims challenge the user authenticates again, and the provider's page gets the claims.
        let challenge = #"{"access_token":{"acrs":{"value":"c1"}}}"#
        let again = try await device.token(by: "acquireTokenInteractively", scopes: ["orders.read"], claims: challenge)
        let newToken = try #require(again["brokerTokenResponse"]?["accessToken"]?.string, "\(again.context)")
        #expect(newToken != token)
        #expect(device.prompts.last?.hasSuffix("--again \(challenge)") == true, "\(device.prompts)")
    }

    @Test("a provider that wants a new sign-in has status 13 until the user signs in")
    func personWanted() async throws {
        let fault = "refresh-token-invalid-sub.bridge"
        let device = try await ProviderDevice(fault: fault, scopes: ["openid", "profile", "orders.read"])
        try await device.signIn()
        // The sign-in's own token lacks this scope. The provider is asked, and its response is about another user.
        let first = try await device.token(scopes: ["orders.read"])
        #expect(first.status == 13 && first.context.contains("sign in again"), "\(first.text)")
        // From then on no request gets a token, whatever its scopes.
        #expect(try await device.token().status == 13)
        let asking = try await device.token(by: "acquireTokenInteractively")
        #expect(asking.status == 9 && asking.context.contains("no display"), "\(asking.text)")
        try await device.signIn()
        #expect(try await device.token()["brokerTokenResponse"]?["accessToken"]?.string != nil)
    }

    @Test("an unreachable provider has status 3 for new tokens, also interactively")
    func providerAway() async throws {
        let fault = "refresh-html.bridge"
        let device = try await ProviderDevice(fault: fault, scopes: ["openid", "profile", "orders.read"])
        try await device.signIn()
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
}
