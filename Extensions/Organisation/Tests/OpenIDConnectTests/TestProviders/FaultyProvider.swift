import Basics
import FoundationEssentials
package import HTTPClient
package import Identity
import NotifyCenterTestKit
package import OpenIDConnect

package final class FaultyProvider: Sendable {
    /// One process for all tests: each fault has its own issuer and state. It ends with the test process, which holds
    /// its standard input.
    package static let shared = Task { try await FaultyProvider() }

    /// The folder of the programs that act as providers and as people.
    package static let folder = "/" + #filePath.split(separator: "/").dropLast(3).joined(separator: "/") + "/Providers"

    package static let secret = "s&cret +%/"

    private let directory: TemporaryDirectory
    private let process: ChildProcess
    /// The port at 127.0.0.1.
    package let port: UInt16

    private init() async throws {
        directory = try TemporaryDirectory("faulty-provider")
        process = try ChildProcess("/usr/bin/python3", ["\(Self.folder)/faulty-provider", directory.path])
        let line = try await process.line { $0.hasPrefix("ready ") }
        guard let port = UInt16(line.dropFirst("ready ".count)) else { throw NoAddress() }
        self.port = port
    }

    /// The file with the certificate of its authority.
    package var trustAnchors: String { directory.path + "/authority.pem" }

    /// The issuer with this fault.
    package func issuer(_ fault: String) -> String { "https://localhost:\(port)/\(fault)" }

    /// A client of the shared provider with this fault.
    package static func client(
        _ fault: String,
        clock: OpenIDConnectClient.Clock = TestClock().clock,
        secret: String = FaultyProvider.secret
    ) async throws -> TestClient {
        let provider = try await shared.value
        guard let issuer = Issuer(provider.issuer(fault)) else { throw NoAddress() }
        return TestClient(issuer, secret: secret, trustAnchors: provider.trustAnchors, clock: clock)
    }
}

/// The address that browsers come back to.
package let testRedirect = "http://127.0.0.1:8976/callback"

package struct NoAddress: Error {
    package init() {}
}

/// A client and a browser.
package struct TestClient: Sendable {
    package let client: OpenIDConnectClient
    package let http: HTTPClient

    package init(
        _ issuer: Issuer,
        secret: String,
        trustAnchors: String? = nil,
        clock: OpenIDConnectClient.Clock = .init()
    ) {
        http = HTTPClient(trustAnchors: trustAnchors, patience: 30)
        let credentials = ClientCredentials(identifier: "device-7", secret: Secret(secret))
        client = OpenIDConnectClient(issuer: issuer, credentials: credentials, http: http, clock: clock)
    }

    /// Signs in with the browser.
    package func signIn() async throws -> OpenIDConnectClient.SignedIn {
        let flow = try await client.beginSignIn(redirect: testRedirect)
        let query = try await browse(flow.address(scopes: ["openid", "profile"], loginHint: "ada"))
        return try await client.completeSignIn(flow, query: query, requestedAt: Date())
    }

    /// Refreshes the tokens of a sign-in.
    package func refresh(_ signedIn: OpenIDConnectClient.SignedIn) async throws -> RefreshOutcome {
        guard let token = signedIn.tokens.refreshToken else { throw NotRenewed(description: "no refresh token") }
        return await client.refresh(token, of: signedIn.identity)
    }

    /// The query of the address that the provider redirects the browser to.
    package func browse(_ address: String) async throws -> String {
        guard let address = HTTPAddress(address) else { throw NoAddress() }
        return String(decoding: try await http.send(HTTPRequest(address)).body, as: UTF8.self)
    }

    /// The content of a path below the issuer.
    package func page(_ path: String) async throws -> String { try await browse(client.issuer.text + "/" + path) }

    /// The error of a sign-in; `nil` if it succeeds.
    package func refusal() async throws -> IdentityError? {
        do {
            _ = try await signIn()
            return nil
        } catch let error as IdentityError {
            return error
        }
    }
}
