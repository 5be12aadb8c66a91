import Basics
import DBus
import FoundationEssentials
import HTTPClient
import Identity
import NotifyCenterTestKit
import OpenIDConnect
import Synchronization
import TestProviders
import Testing

@testable import OrganisationIdentity

/// A receiver of events, with a real transmitter and a broker that records the events.
private final class Receiver: Sendable {
    struct Refused: Error {}

    let clock = TestClock()
    let test: TestClient
    let issuer: String
    let events = Locked<[ProviderEvent]>([])
    let notes = Locked<[SharedSignals.Note]>([])
    let refuses = Locked(false)
    private let endpoint: HTTPAddress

    /// - Parameter fault: The fault of the provider. Each fault has a separate provider.
    init(_ fault: String) async throws {
        test = try await FaultyProvider.client(fault, clock: clock.clock)
        issuer = test.client.issuer.text
        endpoint = try #require(HTTPAddress(issuer + "/signals/poll"))
    }

    func signals(audience: String = "device-7", device: String? = nil, token: String? = "given-token") -> SharedSignals
    {
        SharedSignals(
            test.client,
            .init(endpoint: endpoint, audience: audience, device: device, scopes: ["ssf.read"]),
            token: token.map { Secret($0) },
            clock: clock.clock
        ) { [weak self] note in
            self?.notes.withLock { $0.append(note) }
        } report: { [weak self] event in
            guard let self, !refuses.withLock({ $0 }) else { throw Refused() }
            events.withLock { $0.append(event) }
        }
    }

    /// Adds an event to the stream, and returns its `jti`.
    @discardableResult
    func add(_ query: String) async throws -> String { try await test.page("signals/add?" + query) }

    func list(_ name: String) async throws -> [String] {
        try await test.page("signals/" + name).split(separator: "\n").map(String.init)
    }

    /// The number of requests to the stream.
    func polls() async throws -> Int { try await Int(list("polls").first ?? "") ?? 0 }

    /// Adds an event, receives until it is acknowledged, and returns its `jti`.
    @discardableResult
    func take(_ query: String, _ signals: SharedSignals? = nil) async throws -> String {
        let identifier = try await add(query)
        try await receive(signals, until: "the acknowledgement") { try await self.list("waiting").isEmpty }
        return identifier
    }

    /// Receives until the condition holds.
    func receive(
        _ signals: SharedSignals? = nil,
        until what: String,
        _ condition: @escaping @Sendable () async throws -> Bool
    ) async throws {
        let signals = signals ?? self.signals()
        let task = Task { await signals.run() }
        defer { task.cancel() }
        try await eventually(what, condition)
        // A stream has only one receiver at a time.
        task.cancel()
        await task.value
    }

    /// The broker's events without their dates.
    var told: [ProviderEvent] {
        events.withLock { events in
            events.map { ProviderEvent($0.kind, issuer: $0.issuer, subject: $0.subject, session: $0.session) }
        }
    }

    func event(_ kind: ProviderEvent.Kind, _ subject: String? = nil, session: String? = nil) -> ProviderEvent {
        ProviderEvent(kind, issuer: issuer, subject: subject, session: session)
    }
}

@Suite("Security events of a polled stream")
struct SignalsTests {
    @Test("an event has its effect for what it names; an unclear one makes the broker ask")
    func subjects() async throws {
        let receiver = try await Receiver("signals.subjects")
        let (revoked, compliance) = ("event=session-revoked&", "event=device-compliance-change&device=")
        let ended = receiver.event(.ended, "ada")
        var identifiers: [String] = []
        for (query, device, expected) in [
            ("event=session-revoked", nil, ended), ("event=sessions-revoked", nil, ended),
            ("event=account-disabled", nil, ended), ("event=account-purged", nil, ended),
            ("event=credential-change", nil, receiver.event(.reauthenticate, "ada")), ("event=verification", nil, nil),
            // A named session ends alone.
            (revoked + "session=session-1", "till-7", receiver.event(.ended, "ada", session: "session-1")),
            (revoked + "device=till-7", "till-7", ended),
            (revoked + "device=till-8", "till-7", nil),
            (revoked + "subject=grace", "till-7", receiver.event(.ended, "grace")),
            // Without a configured device name, the event may concern this device.
            (revoked + "device=till-8", nil, receiver.event(.doubt, "ada")),
            (compliance + "till-7&status=not-compliant", "till-7", receiver.event(.notCompliant)),
            (compliance + "till-8&status=not-compliant", "till-7", nil),
            (compliance + "till-7&status=compliant", "till-7", receiver.event(.compliant)),
            (compliance + "till-7", "till-7", receiver.event(.doubt)),
        ] as [(String, String?, ProviderEvent?)] {
            let before = receiver.told
            identifiers.append(try await receiver.take(query, receiver.signals(device: device)))
            #expect(receiver.told == before + [expected].compactMap { $0 }, "\(query)")
            #expect(try await receiver.list("acknowledged") == identifiers, "\(query)")
        }
        // The token is for several receivers, among them this stream's audience.
        let before = receiver.told
        try await receiver.take(revoked + "audience=till-7&fault=several-aud", receiver.signals(audience: "till-7"))
        #expect(receiver.told == before + [ended])
        // One note of each receiver.
        #expect(receiver.notes.withLock { $0 } == identifiers.map { _ in .works } + [.works])
    }

    @Test(
        "a faulty token ends no session, and the transmitter gets the reason",
        arguments: [
            // Signed by a stranger.
            [
                ("alg-none", "invalid_key"), ("hs256", "invalid_key"), ("spoilt", "invalid_key"),
                ("stranger", "invalid_key"), ("jku", "invalid_key"), ("no-token", "invalid_key"),
            ],
            // Signed by the provider.
            [
                ("no-type", "invalid_request"), ("wrong-type", "invalid_request"), ("logout-type", "invalid_request"),
                ("wrong-aud", "invalid_audience"), ("no-aud", "invalid_request"), ("wrong-iss", "invalid_issuer"),
                ("no-iat", "invalid_request"), ("future", "invalid_request"), ("no-jti", "invalid_request"),
                ("other-jti", "invalid_request"), ("with-exp", "invalid_request"), ("with-sub", "invalid_request"),
                ("no-events", "invalid_request"), ("empty-events", "invalid_request"),
            ],
        ]
    )
    func mistakes(mistakes: [(fault: String, word: String)]) async throws {
        let isStrangers = mistakes.allSatisfy { $0.word == "invalid_key" }
        let receiver = try await Receiver("signals.mistakes-of-\(isStrangers ? "strangers" : "provider")")
        var expected: Set<String> = []
        for (fault, word) in mistakes {
            let identifier = try await receiver.add("event=session-revoked&fault=\(fault)")
            expected.insert("\(identifier) \(word)")
        }
        try await receiver.receive(until: "the refusals") { [expected] in
            try await Set(receiver.list("errors")) == expected
        }
        // For a rejected token that the provider has signed, the broker is told to ask the provider. A stranger's token
        // has no effect.
        #expect(receiver.told == (isStrangers ? [] : mistakes.map { _ in receiver.event(.doubt) }))
        #expect(try await receiver.list("acknowledged").isEmpty)
    }

    @Test("a rejected token is logged with its signer and reason, at most five a minute")
    func refusals() async throws {
        let receiver = try await Receiver("signals.refusals")
        var identifiers: Set<String> = []
        for number in 0..<20 {
            identifiers.insert(
                try await receiver.add("event=session-revoked&fault=\(number % 2 == 0 ? "alg-none" : "with-exp")")
            )
        }
        let signals = receiver.signals()
        let task = Task { await signals.run() }
        defer { task.cancel() }
        try await eventually("the refusals") { try await receiver.list("errors").count == 20 }
        func told() -> [SharedSignals.RefusedToken] {
            receiver.notes.withLock { $0 }.compactMap { if case .refused(let token) = $0 { token } else { nil } }
        }
        #expect(told().count == RefusalTally.lines)
        #expect(Set(told().map(\.identifier)).isSubset(of: identifiers))
        for token in told() {
            #expect(token.isProviders == token.reason.contains("exp"), "\(token)")
            #expect(token.isProviders || token.reason.hasPrefix("the event token is not signed by"), "\(token)")
        }
        receiver.clock.advance(by: RefusalTally.window)
        try await receiver.add("event=verification")
        try await eventually("the number of further refusals") {
            receiver.notes.withLock { $0 }.contains(.refusedMore(20 - RefusalTally.lines))
        }
        #expect(told().count == RefusalTally.lines)
        #expect(receiver.notes.withLock { $0 }.count { if case .refusedMore = $0 { true } else { false } } == 1)
    }

    @Test("a token whose acknowledgement was lost has its effect once")
    func lostAcknowledgement() async throws {
        let receiver = try await Receiver("signals-forget")
        let identifier = try await receiver.add("event=session-revoked")
        try await receiver.receive(until: "the second acknowledgement") {
            try await receiver.list("acknowledged") == [identifier]
        }
        #expect(receiver.told == [receiver.event(.ended, "ada")])
    }

    @Test("a token that the broker rejects stays with the transmitter, and is retried")
    func brokerRefuses() async throws {
        let receiver = try await Receiver("signals.broker-refuses")
        receiver.refuses.withLock { $0 = true }
        try await receiver.add("event=account-disabled")
        let signals = receiver.signals()
        let task = Task { await signals.run() }
        defer { task.cancel() }
        try await eventually("the failure") {
            receiver.notes.withLock { $0 }.contains {
                if case .fails(let text) = $0 { text.contains("broker") } else { false }
            }
        }
        #expect(try await receiver.list("acknowledged").isEmpty && receiver.told.isEmpty)
        receiver.refuses.withLock { $0 = false }
        try await eventually("the acknowledgement") { try await receiver.list("waiting").isEmpty }
        #expect(receiver.told == [receiver.event(.ended, "ada")])
    }

    /// A receiver that knows the keys before their rotation, and an event with a new key.
    private func rotated(_ fault: String) async throws -> (Receiver, SharedSignals, event: String) {
        let receiver = try await Receiver(fault)
        let signals = receiver.signals()
        try await receiver.take("event=verification", signals)
        receiver.clock.advance(by: .seconds(70))
        _ = try await receiver.test.page("rotate")
        return (receiver, signals, try await receiver.add("event=session-revoked"))
    }

    @Test("a token with a new key waits until the keys may be read again")
    func rotation() async throws {
        let (receiver, signals, identifier) = try await rotated("keys-away.signals")
        try await receiver.receive(signals, until: "the acknowledgement") {
            try await receiver.list("acknowledged").contains(identifier)
        }
        #expect(receiver.told == [receiver.event(.ended, "ada")])
        #expect(try await receiver.list("errors").isEmpty)
    }

    @Test("a token whose check is cancelled is neither acknowledged nor refused")
    func cancelled() async throws {
        let (receiver, signals, identifier) = try await rotated("keys-wait.signals")
        try await receiver.receive(signals, until: "the request for the keys") {
            try await receiver.test.page("key-requests") == "2"
        }
        _ = try await receiver.test.page("go-on")
        try await receiver.receive(signals, until: "the acknowledgement") { try await receiver.list("waiting").isEmpty }
        #expect(try await receiver.list("errors").isEmpty)
        #expect(try await receiver.list("acknowledged").contains(identifier))
        #expect(receiver.told == [receiver.event(.ended, "ada")])
    }

    @Test("a stream with unusable responses is polled more rarely, and logged once")
    func nonsense() async throws {
        let receiver = try await Receiver("signals-refuse")
        try await receiver.receive(until: "eight requests") { try await receiver.polls() >= 8 }
        #expect(receiver.told.isEmpty)
        let pauses = [5, 10, 20, 40, 80, 160, 300].map { Duration.seconds($0) }
        #expect(Array(receiver.clock.waited.prefix(7)) == pauses)
        let notes = receiver.notes.withLock { $0 }
        guard notes.count == 1, case .fails(let text)? = notes.first else { throw NoAddress() }
        #expect(text.contains("shared-signals-token"), "\(text)")
        // The message contains no token.
        #expect(!text.contains("given-token"))
    }

    @Test("without an administrator's token the device requests its own")
    func ownToken() async throws {
        let receiver = try await Receiver("signals.own-token")
        for _ in 1...2 {
            try await receiver.take("event=session-revoked", receiver.signals(token: nil))
        }
        #expect(receiver.told.count == 2)
        let denied = try await Receiver("signals-no-grant")
        try await denied.receive(denied.signals(token: nil), until: "the failure") {
            !denied.notes.withLock { $0 }.isEmpty
        }
        guard case .fails(let text)? = denied.notes.withLock({ $0.first }) else { return }
        #expect(text.contains("client_credentials") && text.contains("shared-signals-token"), "\(text)")
        #expect(try await denied.list("polls") == ["0"])
    }

    @Test("a wake-up sends a request at once, even while another one waits")
    func wake() async throws {
        let receiver = try await Receiver("signals.wake")
        let signals = receiver.signals()
        let task = Task { await signals.run() }
        defer { task.cancel() }
        for number in 1...3 {
            try await eventually("request \(number)") { try await receiver.polls() >= number }
            signals.wake()
        }
        #expect(receiver.notes.withLock { $0 }.allSatisfy { $0 == .works })
    }

    @Test("the check reports whether the stream responds, and takes no event")
    func check() async throws {
        let good = try await Receiver("signals.check")
        try await good.add("event=session-revoked")
        let step = await good.signals().check()
        #expect(step.outcome == .works && step.name == .sharedSignals, "\(step.text)")
        #expect(try await good.list("waiting").count == 1 && good.told.isEmpty)
        for (fault, remedy) in [
            ("signals-refuse", "shared-signals-token"), ("signals-missing", "endpoint_url"),
            ("signals-html", "RFC 8936"), ("signals-away", "503"), ("signals-redirect", "another address"),
        ] {
            let step = await (try await Receiver(fault + ".check")).signals().check()
            #expect(step.outcome == .fails && step.text.contains(remedy), "\(step.text)")
        }
    }
}
