import Basics
import DBus
import DeviceStorage
import EmbeddedIdentity
import Foundation
import Identity
import Logging
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import Testing

@testable import BrokerCore
@testable import SharedDeviceBroker

@Suite("The broker on a bus with an organisation's provider", .timeLimit(.minutes(5)))
struct OrganisationServiceTests {
    private let bus: PrivateBus
    private let directory: TemporaryDirectory
    private let provider = ScriptedProvider()
    private let service: BrokerService
    private let caller: DBusConnection
    private let keys = KeyTroubles()

    init() async throws {
        bus = try PrivateBus()
        directory = try TemporaryDirectory()
        let configuration = """
            {"sharedDeviceMode": true, "identity": "oidc", "oidcClientID": "device", "oidcIssuer": "https://login.example",
                "oidcTrustAnchors": "\(directory.file("provider.pem"))"}
            """
        try directory.write(DeviceCertificateTests.certificate, to: "provider.pem")
        try directory.write(#"{"certificate": "/none.pem"}"#, to: "fleet-agent.json")
        try directory.write(configuration, to: "device.json")
        let database = try DeviceDatabase(directory: directory.state)
        service = try await onceInotifyIsFree { [bus, directory, provider, keys] in
            try await BrokerService(
                BrokerService.Options(
                    bus: bus.bus,
                    stateDirectory: directory.state,
                    configurationFile: directory.file("device.json")
                ),
                database: database,
                provider: EmbeddedIdentityProvider(directory: UserDirectory(database: database)),
                organisation: { _ in provider },
                keys: keys,
                log: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
            )
        }
        caller = try DBusConnection.open(bus.bus)
    }

    private func call(
        _ method: BrokerProtocol.Method,
        _ fields: BrokerProtocol.Fields?,
        by caller: DBusConnection? = nil
    ) async throws -> BrokerProtocol.Fields {
        let answer = try await (caller ?? self.caller).call(
            try DBusMessage.methodCall(
                destination: BrokerProtocol.busName,
                path: BrokerProtocol.path,
                interface: BrokerProtocol.interface,
                member: method.rawValue,
                arguments: fields.map { [DBusValue.fields($0)] } ?? []
            )
        )
        return answer.first?.fieldsValue ?? [:]
    }

    private func callAsPrompt(
        _ method: BrokerProtocol.Method,
        _ fields: BrokerProtocol.Fields = [:]
    ) async throws -> BrokerProtocol.Fields {
        try await call(method, fields.merging(["application": .string("org.example.prompt")]) { $1 })
    }

    @Test("a user signs in on the page and is signed out by the provider's event")
    func fromAfar() async throws {
        let begun = try await callAsPrompt(
            .beginSignIn,
            ["methods": .array([.string("browser")], of: "s"), "redirectURI": .string("http://127.0.0.1:1/callback")]
        )
        let name = try #require(begun["request"])
        #expect(begun["authorizationURL"] == .string("https://login.example/page"))
        let answer = try await callAsPrompt(.completeSignIn, ["request": name, "query": .string("code=1")])
        #expect(answer["username"] == .string("ada"))
        let event: DBusValue = .fields([
            "kind": .string("ended"), "issuer": .string("https://login.example"), "session": .string("sid-of-ada"),
        ])
        // A separate connection, because the service is not an app.
        let service = try DBusConnection.open(bus.bus)
        _ = try await call(.reportProviderEvents, ["events": .array([event], of: "a{sv}")], by: service)
        #expect(try await callAsPrompt(.getCurrentAccount)["account"] == nil)
    }

    @Test("the command's status has the ends of the device's certificates and key problems")
    func certificates() async throws {
        let bus = ["--state", directory.state, "--bus", bus.address]
        try await eventually("the files are read") {
            try await Program.sharedDevice.run(["status"] + bus).output.contains("provider's authority")
        }
        let lines = try await Program.sharedDevice.run(["status"] + bus).output.split(separator: "\n")
            .filter { $0.hasPrefix("certificate") }
        let days = Int((2_141_629_277 - Date().timeIntervalSince1970) / 86400)
        try #require(lines.count == 3)
        #expect(lines[0].hasSuffix("the provider's authority (\(directory.file("provider.pem"))) ends in \(days) days"))
        #expect(lines[1].contains("the fleet agent's certificate: /none.pem cannot be read: No such file"))
        #expect(lines[2].contains("has no text “authority”"))
        let json = try await Program.sharedDevice.run(["status", "--json"] + bus).output
        #expect(json.contains(#""days":\#(days)"#) || json.contains(#""days" : \#(days)"#), "\(json)")

        keys.set("there is no space; free some space and try again", for: .tokens)
        keys.set("it has 3 bytes; make it anew", for: .records)
        let problem =
            "the key of records: it has 3 bytes; make it anew; the keys of tokens: there is no space; free some space and try again"
        func told() async throws -> DBusValue? {
            try await call(.getDeviceInformation, nil)["keyProblem"]
        }
        try await eventually("both problems are told") { try await told() == .string(problem) }
        let status = try await Program.sharedDevice.run(["status"] + bus)
        #expect(status.status == 0 && status.output.contains(problem), "\(status.output) \(status.errors)")
        for trouble in [KeyTroubles.Keys.tokens, .records] { keys.set(nil, for: trouble) }
        try await eventually("no problem is told") { try await told() == nil }
    }
}

/// A provider whose page signs every visitor in as Ada.
private struct ScriptedProvider: OrganisationProvider {
    func begin(_ start: SignInStart) async throws(IdentityError) -> BegunSignIn {
        BegunSignIn(handle: "handle", prompt: .browser(address: "https://login.example/page"), lifetime: .seconds(600))
    }

    func complete(_ handle: String, query: String) async throws(IdentityError) -> ProviderSignIn {
        ProviderSignIn(account: Account(identifier: "1.t", username: "ada"), record: .adas, token: token([]))
    }

    func poll(_ handle: String) async throws(IdentityError) -> ProviderSignIn? { nil }

    func cancel(_ handle: String) async {}

    func renew(_ record: ProviderRecord, scopes: Set<String>, mayBeUsed: Bool) async -> RenewalOutcome {
        .renewed(token(scopes), nil)
    }

    func end(_ record: ProviderRecord, keepsSession: Bool) async throws(IdentityError) {}

    private func token(_ scopes: Set<String>) -> AccessToken {
        AccessToken(value: "token", scopes: scopes, expiresAt: Date(timeIntervalSinceNow: 3600))
    }
}
