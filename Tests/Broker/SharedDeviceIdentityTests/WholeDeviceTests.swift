import DBusTransport
import FoundationEssentials
import NotifyCenterTestKit
import SharedDevice
import TestProviders
import Testing

/// A bus with the broker, the process that speaks to the provider, and a prompt.
final class WholeDevice: Sendable {
    let port: UInt16
    let directory: TemporaryDirectory
    let bus: PrivateBus
    private let prompt: DBusConnection
    private let programs: [ChildProcess]
    private let arguments: [String]

    /// - Parameter more: further members of the managed configuration, each with a comma before it.
    init(fault: String, more: String = "") async throws {
        let faulty = try await FaultyProvider.shared.value
        bus = try PrivateBus()
        directory = try TemporaryDirectory("whole-device")
        port = try freePort()
        let file = directory.path + "/managed-configuration.json"
        try #"""
        {"sharedDeviceMode": true, "identity": "oidc", "oidcIssuer": "\#(faulty.issuer(fault))", "oidcClientID": "device-7",
        "oidcTrustAnchors": "\#(faulty.trustAnchors)", "backChannelLogout": "127.0.0.1:\#(port)"\#(more)}
        """#
        .write(toFile: file, atomically: true, encoding: .utf8)
        try "s&cret +%/".write(toFile: directory.path + "/oidc-client-secret", atomically: true, encoding: .utf8)
        arguments = ["--bus", bus.address, "--configuration", file]
        programs = [
            try ChildProcess(
                ChildProcess.built("shared-device-broker"),
                arguments + ["--state", directory.path + "/state"]
            ),
            try Self.identity(arguments, directory),
        ]
        for program in programs { _ = try await program.line { $0 == "ready" } }
        prompt = try DBusConnection.open(bus.bus)
    }

    private static func identity(_ arguments: [String], _ directory: TemporaryDirectory) throws -> ChildProcess {
        try ChildProcess(
            ChildProcess.built("shared-device-identity"),
            arguments,
            environment: ["CREDENTIALS_DIRECTORY": directory.path]
        )
    }

    /// Ends the process that speaks to the provider, without a chance to do anything more.
    func killIdentity() {
        programs[1].kill()
        programs[1].waitUntilExit()
    }

    /// Starts it again.
    func startIdentity() async throws -> ChildProcess {
        let process = try Self.identity(arguments, directory)
        _ = try await process.line { $0 == "ready" }
        return process
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
            arguments: [.fields(request)]
        )
        return try await prompt.call(message).first?.fieldsValue ?? [:]
    }

    /// Who is signed in.
    func account() async throws -> Account? { try? Account(try await call(.getCurrentAccount)["account"]) }

    /// Signs Ada in as her browser does.
    func signIn(_ test: TestClient) async throws {
        let begun = try await call(
            .beginSignIn,
            [
                "methods": .array([.string("browser")], of: "s"), "redirectURI": .string(IdentityDevice.redirect),
                "loginHint": .string("ada"),
            ]
        )
        let query = try await test.browse(try #require(begun["authorizationURL"]?.stringValue))
        let request = try #require(begun["request"])
        _ = try await call(.completeSignIn, ["request": request, "query": .string(query)])
    }
}

@Suite("Broker and provider's process together")
struct WholeDeviceTests {
    @Test("Ada signs in by her provider's page, signs out here, and the provider is told: session first, then tokens")
    func signOut() async throws {
        let device = try await WholeDevice(fault: "whole-sign-out")
        let test = try await FaultyProvider.shared.value.client("whole-sign-out")
        try await device.signIn(test)
        let ada = try #require(try await device.account())
        #expect(ada.username == "ada@example.com")
        _ = try await device.call(.signOut, ["accountIdentifier": .string(ada.identifier)])
        #expect(try await device.account() == nil)
        try await eventually("the provider's being told") {
            try await test.page("ended") == "end-session\nrevoke refresh_token\nrevoke access_token"
        }
    }

    @Test("Ada is signed out when her provider ends the session, by its logout token")
    func fromAfar() async throws {
        let device = try await WholeDevice(fault: "whole-from-afar")
        let test = try await FaultyProvider.shared.value.client("whole-from-afar")
        try await device.signIn(test)
        #expect(try await device.account() != nil)
        let body = "logout_token=\(try await test.page("logout-token"))"
        let port = device.port
        let request =
            "POST / HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: \(body.utf8.count)\r\n\r\n"
            + body
        let answer = try await aside { try exchange(request, port: port) }
        #expect(answer.hasPrefix("HTTP/1.1 200"), "\(answer)")
        #expect(try await device.account() == nil)
    }
}
