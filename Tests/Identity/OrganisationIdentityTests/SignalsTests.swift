import DBusTransport
import FoundationEssentials
import HTTPClient
import Identity
import NotifyCenterTestKit
import OpenIDConnect
import StrictJSON
import Synchronization
import TestProviders
import Testing

@testable import OrganisationIdentity

/// A receiver of events, with a real transmitter and a broker that keeps what it is told.
private final class Receiver: Sendable {
    struct Refused: Error {}

    let clock = TestClock()
    let test: TestClient
    let issuer: String
    let events = Locked<[ProviderEvent]>([])
    let notes = Locked<[SharedSignals.Note]>([])
    let refuses = Locked(false)
    private let endpoint: HTTPAddress

    /// - Parameter fault: what the provider does wrong; each has a provider of its own.
    init(_ fault: String) async throws {
        let faulty = try await FaultyProvider.shared.value
        test = try faulty.client(fault, clock: clock)
        issuer = faulty.issuer(fault)
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

    /// Puts an event into the stream, and returns its `jti`.
    @discardableResult
    func add(_ query: String) async throws -> String { try await test.page("signals/add?" + query) }

    func list(_ name: String) async throws -> [String] {
        try await test.page("signals/" + name).split(separator: "\n").map(String.init)
    }

    /// Receives until the condition holds.
    func receive(
        _ signals: SharedSignals? = nil,
        until what: String,
        _ condition: @escaping @Sendable () async throws -> Bool
    ) async throws {
        let signals = signals ?? self.signals()
        let task = Task { await signals.run() }
        do {
            try await eventually(what, condition)
            // A stream has one receiver at a time.
            task.cancel()
            await task.value
        } catch {
            task.cancel()
            let (notes, events) = (notes.withLock { $0 }, told)
            let lists = [try? await list("polls"), try? await list("waiting"), try? await list("errors")]
            let state = "polls, waiting, errors \(lists); told \(events); \(notes); waits \(clock.waited.suffix(20))"
            Issue.record("\(what): \(state)")
            throw error
        }
    }

    /// What the broker was told, without its time.
    var told: [ProviderEvent] {
        events.withLock { events in
            events.map { ProviderEvent($0.kind, issuer: $0.issuer, subject: $0.subject, session: $0.session) }
        }
    }

    func event(_ kind: ProviderEvent.Kind, _ subject: String? = nil, session: String? = nil) -> ProviderEvent {
        ProviderEvent(kind, issuer: issuer, subject: subject, session: session)
    }
}

@Suite("Security events of a stream that is asked for them")
struct SignalsTests {
    @Test(
        "each event leads to what the specification says, and is acknowledged when the broker has it",
        arguments: [
            ("session-revoked", .ended), ("sessions-revoked", .ended), ("account-disabled", .ended),
            ("account-purged", .ended), ("credential-change", .reauthenticate), ("verification", nil),
        ] as [(String, ProviderEvent.Kind?)]
    )
    func events(name: String, kind: ProviderEvent.Kind?) async throws {
        let receiver = try await Receiver("signals.\(name)")
        let identifier = try await receiver.add("event=\(name)")
        try await receiver.receive(until: "the acknowledgement") {
            try await receiver.list("acknowledged") == [identifier]
        }
        #expect(receiver.told == [kind.map { receiver.event($0, "ada") }].compactMap { $0 })
        #expect(receiver.notes.withLock { $0 } == [.works])
    }

    @Test("a session that is named ends alone; an event about more than is known here has the provider asked")
    func subjects() async throws {
        let receiver = try await Receiver("signals.subjects")
        for query in ["session=session-1", "device=till-7", "device=till-8", "subject=grace"] {
            try await receiver.add("event=session-revoked&\(query)")
            try await receiver.receive(receiver.signals(device: "till-7"), until: "the acknowledgement") {
                try await receiver.list("waiting").isEmpty
            }
        }
        #expect(
            receiver.told == [
                receiver.event(.ended, "ada", session: "session-1"), receiver.event(.ended, "ada"),
                receiver.event(.ended, "grace"),
            ]
        )
        // Without a name of its own the device does not know which device is meant.
        try await receiver.add("event=session-revoked&device=till-8")
        try await receiver.receive(until: "the acknowledgement") { try await receiver.list("waiting").isEmpty }
        #expect(receiver.told.last == receiver.event(.doubt, "ada"))
    }

    @Test("the device itself: compliant or not, by the name that the configuration has for it")
    func compliance() async throws {
        let receiver = try await Receiver("signals.compliance")
        for query in [
            "till-7&status=not-compliant", "till-8&status=not-compliant", "till-7&status=compliant", "till-7",
        ] {
            try await receiver.add("event=device-compliance-change&device=\(query)")
            try await receiver.receive(receiver.signals(device: "till-7"), until: "the acknowledgement") {
                try await receiver.list("waiting").isEmpty
            }
        }
        #expect(receiver.told == [.notCompliant, .compliant, .doubt].map { receiver.event($0) })
    }

    @Test(
        "a token with a mistake ends no session, and the transmitter is told why",
        arguments: [
            // What a stranger has signed.
            [
                ("alg-none", "invalid_key"), ("hs256", "invalid_key"), ("spoilt", "invalid_key"),
                ("stranger", "invalid_key"), ("jku", "invalid_key"), ("no-token", "invalid_key"),
            ],
            // What the provider has signed.
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
        // What the provider has signed and cannot be understood has it asked; what a stranger has signed, nothing.
        #expect(receiver.told == (isStrangers ? [] : mistakes.map { _ in receiver.event(.doubt) }))
        #expect(try await receiver.list("acknowledged").isEmpty)
    }

    @Test(
        "who has signed a refused token, and why it is refused, is told; of many, five a minute and then their number"
    )
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
        try await eventually("the rest") {
            receiver.notes.withLock { $0 }.contains(.refusedMore(20 - RefusalTally.lines))
        }
        #expect(told().count == RefusalTally.lines)
        #expect(receiver.notes.withLock { $0 }.count { if case .refusedMore = $0 { true } else { false } } == 1)
    }

    @Test("a token for this device and others counts, as the stream's own audience says")
    func audience() async throws {
        let receiver = try await Receiver("signals.audience")
        try await receiver.add("event=session-revoked&audience=till-7&fault=several-aud")
        try await receiver.receive(receiver.signals(audience: "till-7"), until: "the acknowledgement") {
            try await receiver.list("waiting").isEmpty
        }
        #expect(receiver.told == [receiver.event(.ended, "ada")])
    }

    @Test("a token whose acknowledgement was lost comes again, and counts once")
    func lostAcknowledgement() async throws {
        let receiver = try await Receiver("signals-forget")
        let identifier = try await receiver.add("event=session-revoked")
        try await receiver.receive(until: "the second acknowledgement") {
            try await receiver.list("acknowledged") == [identifier]
        }
        #expect(receiver.told == [receiver.event(.ended, "ada")])
    }

    @Test("what the broker does not take stays with the transmitter, and counts when it comes again")
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

    @Test("a token of the provider's new key waits until the keys may be read again, and is not given up")
    func rotation() async throws {
        let receiver = try await Receiver("keys-away.signals")
        try await receiver.add("event=verification")
        let signals = receiver.signals()
        try await receiver.receive(signals, until: "the first one") { try await receiver.list("waiting").isEmpty }
        receiver.clock.advance(by: .seconds(70))
        _ = try await receiver.test.page("rotate")
        let identifier = try await receiver.add("event=session-revoked")
        try await receiver.receive(signals, until: "the acknowledgement") {
            try await receiver.list("acknowledged").contains(identifier)
        }
        #expect(receiver.told == [receiver.event(.ended, "ada")])
        #expect(try await receiver.list("errors").isEmpty)
    }

    @Test("a token whose check is cancelled is neither acknowledged nor refused")
    func cancelled() async throws {
        let receiver = try await Receiver("keys-wait.signals")
        try await receiver.add("event=verification")
        let signals = receiver.signals()
        try await receiver.receive(signals, until: "the first one") { try await receiver.list("waiting").isEmpty }
        receiver.clock.advance(by: .seconds(70))
        _ = try await receiver.test.page("rotate")
        let identifier = try await receiver.add("event=session-revoked")
        try await receiver.receive(signals, until: "the question for keys") {
            try await receiver.test.page("key-requests") == "2"
        }
        _ = try await receiver.test.page("free-keys")
        try await receiver.receive(signals, until: "the acknowledgement") {
            try await receiver.list("waiting").isEmpty
        }
        #expect(try await receiver.list("errors").isEmpty)
        #expect(try await receiver.list("acknowledged").contains(identifier))
        #expect(receiver.told == [receiver.event(.ended, "ada")])
    }

    @Test(
        "a stream that answers nonsense is asked ever more rarely, and an administrator is told once why",
        arguments: [
            ("signals-html", "JSON"), ("signals-redirect", "another address"), ("signals-large", "1048576 bytes"),
            ("signals-refuse", "shared-signals-token"),
        ]
    )
    func nonsense(fault: String, reason: String) async throws {
        let receiver = try await Receiver(fault)
        try await receiver.receive(until: "eight questions") {
            try await Int(receiver.list("polls").first ?? "") ?? 0 >= 8
        }
        #expect(receiver.told.isEmpty)
        let pauses = [5, 10, 20, 40, 80, 160, 300].map { Duration.seconds($0) }
        #expect(Array(receiver.clock.waited.prefix(7)) == pauses)
        let notes = receiver.notes.withLock { $0 }
        guard notes.count == 1, case .fails(let text)? = notes.first else {
            Issue.record("\(notes)")
            return
        }
        #expect(text.contains(reason), "\(text)")
        // Neither the token nor a query is in it.
        #expect(!text.contains("given-token"))
    }

    @Test("a stream that does not wait is asked every fifteen seconds")
    func empty() async throws {
        let receiver = try await Receiver("signals-empty")
        try await receiver.receive(until: "five questions") {
            try await Int(receiver.list("polls").first ?? "") ?? 0 >= 5
        }
        let waited = receiver.clock.waited.prefix(4)
        #expect(waited.count == 4 && waited.allSatisfy { $0 > .seconds(4) && $0 <= .seconds(15) }, "\(waited)")
        #expect(receiver.notes.withLock { $0 } == [.works])
    }

    @Test(
        "without a token of an administrator's the device gets one by its client ID; a provider that gives none is told of"
    )
    func ownToken() async throws {
        let receiver = try await Receiver("signals.own-token")
        for _ in 1...2 {
            try await receiver.add("event=session-revoked")
            try await receiver.receive(receiver.signals(token: nil), until: "the acknowledgement") {
                try await receiver.list("waiting").isEmpty
            }
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

    @Test("who is woken asks at once, also where a question waits at the transmitter")
    func wake() async throws {
        let receiver = try await Receiver("signals.wake")
        let signals = receiver.signals()
        let task = Task { await signals.run() }
        defer { task.cancel() }
        for number in 1...3 {
            try await eventually("question \(number)") {
                try await Int(receiver.list("polls").first ?? "") ?? 0 >= number
            }
            signals.wake()
        }
        #expect(receiver.notes.withLock { $0 }.allSatisfy { $0 == .works })
    }

    @Test("the check says whether the stream answers, with the remedy, and takes no event")
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
