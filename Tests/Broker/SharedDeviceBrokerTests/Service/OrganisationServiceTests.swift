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
            {"sharedDeviceMode": true, "identity": "oidc", "oidcClientID": "device", "oidcIssuer": "https://login.example"}
            """
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
        _ fields: BrokerProtocol.Fields
    ) async throws
        -> BrokerProtocol.Fields
    {
        let request = fields.merging(["application": .string("org.example.prompt")]) { $1 }
        let answer = try await caller.call(
            try DBusMessage.methodCall(
                destination: BrokerProtocol.busName,
                path: BrokerProtocol.path,
                interface: BrokerProtocol.interface,
                member: method.rawValue,
                arguments: [.fields(request)]
            )
        )
        return answer.first?.fieldsValue ?? [:]
    }

    private func signIn() async throws {
        let begun = try await call(
            .beginSignIn,
            ["methods": .array([.string("browser")], of: "s"), "redirectURI": .string("http://127.0.0.1:1/callback")]
        )
        let name = try #require(begun["request"])
        #expect(begun["authorizationURL"] == .string("https://login.example/page"))
        let answer = try await call(.completeSignIn, ["request": name, "query": .string("code=1")])
        #expect(answer["username"] == .string("ada"))
    }

    @Test("key problems are in the device information and in the command's status")
    func keyTroubles() async throws {
        keys.set("there is no space; free some space and try again", for: .tokens)
        keys.set("it has 3 bytes; make it anew", for: .records)
        let problem =
            "the key of records: it has 3 bytes; make it anew; the keys of tokens: there is no space; free some space and try again"
        func told() async throws -> DBusValue? {
            let question = try DBusMessage.methodCall(
                destination: BrokerProtocol.busName,
                path: BrokerProtocol.path,
                interface: BrokerProtocol.interface,
                member: BrokerProtocol.Method.getDeviceInformation.rawValue
            )
            return try await caller.call(question).first?.fieldsValue?["keyProblem"]
        }
        try await eventually("the trouble") { try await told() == .string(problem) }
        let status = try await Program.sharedDevice.run([
            "status", "--state", directory.state, "--bus", bus.address,
        ])
        #expect(status.status == 0 && status.output.contains(problem), "\(status.output) \(status.errors)")
        for trouble in [KeyTroubles.Keys.tokens, .records] { keys.set(nil, for: trouble) }
        try await eventually("order") { try await told() == nil }
    }

    @Test("the end of a key problem is delivered after the problem")
    func troubleOrder() async throws {
        let troubles = KeyTroubles()
        let told = Shared<[[String]]>([])
        let (isTelling, mayGoOn) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
        troubles.follow { texts in
            if !texts.isEmpty {
                isTelling.signal()
                mayGoOn.wait()
            }
            told.withLock { $0.append(texts) }
        }
        let first = Thread { troubles.set("it has 3 bytes", for: .records) }
        first.start()
        await withCheckedContinuation { continuation in
            Thread {
                isTelling.wait()
                troubles.set(nil, for: .records)
                mayGoOn.signal()
                continuation.resume()
            }.start()
        }
        try await eventually("all is told") { told.withLock { $0.count } == 3 }
        #expect(told.withLock { $0 } == [[], ["the key of records: it has 3 bytes"], []])
    }

    @Test("a user signs in on the page and is signed out by the provider's event")
    func fromAfar() async throws {
        try await signIn()
        let event: DBusValue = .fields([
            "kind": .string("ended"), "issuer": .string("https://login.example"), "session": .string("sid"),
        ])
        // A separate connection, because the service is not an app.
        let service = try DBusConnection.open(bus.bus)
        _ = try await service.call(
            try DBusMessage.methodCall(
                destination: BrokerProtocol.busName,
                path: BrokerProtocol.path,
                interface: BrokerProtocol.interface,
                member: "ReportProviderEvents",
                arguments: [.fields(["events": .array([event], of: "a{sv}")])]
            )
        )
        #expect(try await call(.getCurrentAccount, [:])["account"] == nil)
    }

    @Test("a provider that never answers an end delays neither sign-out nor sign-in")
    func hangs() async throws {
        provider.hangs.withLock { $0 = true }
        try await signIn()
        _ = try await call(.signOut, ["accountIdentifier": .string("1.t")])
        try await eventually("the provider is told") { provider.ends.withLock { $0 } == 1 }
        try await signIn()
        provider.hangs.withLock { $0 = false }
    }

    @Test("a redirect to another machine is refused before the provider is asked")
    func redirect() async throws {
        for address in [
            "http://127.0.0.1:80@example.org/callback", "http://localhost:1234/callback",
            "https://127.0.0.1:1/callback", "http://127.0.0.1:/callback", "http://127.0.0.1:99999/callback",
            "http://127.0.0.1:1/other",
        ] {
            let error = await #expect(throws: DBusError.self, "\(address)") {
                _ = try await call(.beginSignIn, ["redirectURI": .string(address)])
            }
            #expect(error?.name == BrokerProtocol.errorPrefix + "invalid_request", "\(address)")
        }
        #expect(provider.begun.withLock { $0 } == 0)
    }
}

/// A provider whose page signs every visitor in as Ada.
private final class ScriptedProvider: OrganisationProvider {
    let hangs = Shared(false)
    let ends = Shared(0)
    let begun = Shared(0)

    private let record = ProviderRecord(
        person: ProviderRecord.Person(issuer: "https://login.example", subject: "ada"),
        session: "sid",
        content: Secret("refresh")
    )

    func begin(_ start: SignInStart) async throws(IdentityError) -> BegunSignIn {
        begun.withLock { $0 += 1 }
        return BegunSignIn(
            handle: "handle",
            prompt: .browser(address: "https://login.example/page"),
            lifetime: .seconds(600)
        )
    }

    func complete(_ handle: String, query: String) async throws(IdentityError) -> ProviderSignIn {
        ProviderSignIn(account: Account(identifier: "1.t", username: "ada"), record: record, token: token([]))
    }

    func poll(_ handle: String) async throws(IdentityError) -> ProviderSignIn? { nil }

    func cancel(_ handle: String) async {}

    func renew(_ record: ProviderRecord, scopes: Set<String>, mayBeUsed: Bool) async -> RenewalOutcome {
        .renewed(token(scopes), nil)
    }

    func end(_ record: ProviderRecord, keepsSession: Bool) async throws(IdentityError) {
        ends.withLock { $0 += 1 }
        while hangs.withLock({ $0 }) { try? await Task.sleep(for: .milliseconds(20)) }
    }

    private func token(_ scopes: Set<String>) -> AccessToken {
        AccessToken(value: "token", scopes: scopes, expiresAt: Date(timeIntervalSinceNow: 3600))
    }
}
