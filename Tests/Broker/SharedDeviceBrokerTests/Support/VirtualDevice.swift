import DBus
import DeviceConfiguration
import Foundation
import Identity
@_spi(Extensions) import SharedDevice
import Testing
import simulate

@testable import BrokerCore
@testable import SharedDeviceBroker

/// A device without processes, bus, disk and clock. It drives a ``BrokerState``, performs the effects immediately and
/// records them. All of it is synchronous, so a test of the broker's rules is a plain function.
///
/// By default the disk commits at once and the identity provider responds at once. A test can delay or fail both.
final class VirtualDevice {
    struct App {
        let connection: String
        /// The app that the process claims to be.
        var name: String?
    }

    enum Happening: Equatable {
        case replied(UInt64)
        case announced
        case committed
        case notCommitted
    }

    enum DiskMode: Equatable {
        case commits
        /// The batch waits for ``VirtualDevice/finishWriting()``.
        case holds
        case fails(String)
    }

    struct NotAnswered: Error {}

    private(set) var state: BrokerState
    private(set) var now: Moment
    var disk = VirtualDisk()
    var diskMode = DiskMode.commits
    /// The batch that the disk delays.
    private(set) var held: Batch?

    /// Whether the provider's responses wait for ``letProviderAnswer()``.
    var holdsProvider = false
    /// The names of the users who are administrators of their organisation.
    var administrators: Set<String> = []
    /// The users' names, by the numbers of their badges. The PIN of each is 1234.
    var badges: [String: String] = [:]
    /// The groups of users in the device's own directory, by name.
    var groups: [String: Set<String>] = [:]
    /// Makes each token request fail with this error.
    var tokenError: IdentityError?
    private(set) var questions: [Event] = []
    private(set) var passwordChecks = 0

    /// The organisation's provider that ``useOrganisation(_:)`` configures.
    var provider = VirtualProvider()
    /// Whether the broker has a key for records on the disk.
    var keepsRecords = true

    var permitted: Set<Administration.Right> = []
    /// The users who belong to each operator name.
    var members: [String: Set<UInt32>] = [:]
    private(set) var lookUps = 0
    /// Each right that polkit was asked about, and whether polkit may ask the user for a password.
    private(set) var polkitQuestions: [(Administration.Right, Bool)] = []

    /// The result when the bus is asked to start an app.
    var service = ServiceStart.running
    private(set) var startedServices: [String] = []

    /// Each element is one request to logind.
    private(set) var endedLogins: [[String]] = []
    private(set) var allowedShutdowns = 0

    private(set) var happenings: [Happening] = []
    private(set) var replies: [UInt64: Result<BrokerProtocol.Fields, Refusal>] = [:]
    private(set) var announcements = 0
    private(set) var modeAnnouncements = 0
    /// The committed batches. A failed batch is repeated.
    private(set) var batches: [Batch] = []
    private(set) var lastBatch: Batch?
    private(set) var journal: [AuditEntry] = []
    private(set) var notes: [String] = []

    private let requiresProof: Bool
    /// The zone of the machine must not change the result of a test.
    private static let localTime = LocalTime { _ in 0 }
    private var policy = DevicePolicy()
    private var manifests: [AppManifest] = []
    private var events: [Event] = []
    private var lastNumber: UInt64 = 0
    /// The marks in the last response to each connection, which the connection's receipts return.
    var marks: [String: [UInt64: UInt64]] = [:]
    private var lastConnection = 0
    private var callers: [String: Caller] = [:]
    private var lastToken = 0

    /// The apps of a device that uses an organisation's provider. Each connects at its first use.
    private(set) lazy var prompt = app("org.example.prompt")
    private(set) lazy var till = app("org.example.till")
    /// The identity service, which reports the provider's events.
    private(set) lazy var identityService = administrator

    init(_ cleanup: CleanupPolicy = .advisory, requiresProof: Bool = false) {
        self.requiresProof = requiresProof
        now = Moment(wall: Date(timeIntervalSince1970: 1_000_000), uptime: .seconds(1000))
        state = BrokerState(requiresProof: requiresProof, localTime: Self.localTime, at: now)
        policy.mode = .shared
        policy.passwordSignIn = true
        policy.cleanup = cleanup
        feed(.busRestored)
        (announcements, happenings) = (0, [])
        configure { _ in }
    }

    // MARK: Events

    /// Feeds the broker an event and performs all effects that follow from it.
    func feed(_ event: Event) {
        events.append(event)
        guard events.count == 1 else { return }
        while let next = events.first {
            for effect in state.reduce(next, at: now) { perform(effect) }
            events.removeFirst()
        }
    }

    func configure(_ change: (inout DevicePolicy) -> Void) {
        change(&policy)
        feed(.configured(policy))
    }

    func use(_ manifests: AppManifest...) {
        self.manifests = manifests
        feed(.manifests(manifests))
    }

    /// Advances the time, and wakes the broker at each of its deadlines.
    func advance(by duration: Duration) {
        let end = now.uptime + duration
        var wakes = 0
        while let deadline = state.nextDeadline, deadline <= end {
            pass(to: max(deadline, now.uptime))
            feed(.time)
            wakes += 1
            guard wakes < 100_000 else {
                Issue.record("the broker wants to be woken without end")
                return
            }
        }
        pass(to: end)
    }

    private func pass(to uptime: Duration) {
        now.wall += (uptime - now.uptime) / .seconds(1)
        now.uptime = uptime
    }

    /// The device is off for this time.
    func pause(for duration: Duration) { pass(to: now.uptime + duration) }

    /// The device sleeps. The broker is not told yet.
    func sleep(for duration: Duration) {
        pause(for: duration)
        now.asleep += duration
    }

    func setClock(forwardBy seconds: Double) { now.wall += seconds }

    /// Restarts the broker with the present configuration. State that is not on the disk is lost.
    ///
    /// - Parameter afterPowerCut: whether writes that the kernel had not synced are lost too.
    func restart(afterPowerCut: Bool = true) {
        if afterPowerCut { disk.cutPower() }
        held = nil
        questions = []
        events = []
        var content = StoredContent()
        (content.device, content.membership, content.ledger) = (disk.device, disk.membership, disk.ledger(at: now))
        (content.noted, content.compliance) = (disk.laterState, disk.compliance)
        content.provider = keepsRecords ? disk.provider : disk.provider?.withoutRecord
        // The retry times of pending ends are kept in memory only.
        content.outbox = (keepsRecords ? disk.outbox : [:]).mapValues {
            var entry = $0
            (entry.next, entry.isHeld) = (now.uptime, false)
            return entry
        }
        content.recordProblems = keepsRecords || disk.provider?.record == nil ? [] : ["there is no key"]
        state = BrokerState(
            content,
            lastActivity: disk.lastActivity,
            requiresProof: requiresProof,
            localTime: Self.localTime,
            at: now
        )
        feed(.manifests(manifests))
        feed(.configured(policy))
        feed(.busRestored)
    }

    // MARK: Effects

    private func perform(_ effect: Effect) {
        switch effect {
        case .reply(let number, let result):
            if replies[number] != nil { Issue.record("request \(number) was answered twice") }
            replies[number] = result.map(\.fields)
            happenings.append(.replied(number))
        case .announce(let modeChanged):
            announcements += 1
            if modeChanged { modeAnnouncements += 1 }
            happenings.append(.announced)
        case .noteState(let state): disk.note(state, at: now.wall)
        case .commit(let batch):
            if held != nil { Issue.record("a batch before the last one was written") }
            lastBatch = batch
            held = batch
            if diskMode != .holds { finishWriting() }
        case .authenticate(let number, let credentials):
            passwordChecks += 1
            question(.authenticated(number, authenticate(credentials)))
        case .issueToken(let number, _, let scopes):
            lastToken += 1
            let token = AccessToken(value: "token \(lastToken)", scopes: scopes, expiresAt: now.wall + 3600)
            question(.issued(number, tokenError.map { .failure($0) } ?? .success(token)))
        case .startService(let app, _):
            startedServices.append(app)
            feed(.serviceStarted(app: app, service))
        case .authorise(let number, _, let right, let isInteractive):
            polkitQuestions.append((right, isInteractive))
            question(.authorised(number, permitted.contains(right)))
        case .findOperators(let names):
            lookUps += 1
            let users = names.reduce(into: Set()) { $0.formUnion(members[$1] ?? []) }
            question(.operatorsFound(names: names, users: users))
        case .readLog(let number, let filter): question(.logRead(number, .success(disk.lines(filter))))
        case .keepActivity(let date): disk.lastActivity = date
        case .beginSignIn(let name, let start):
            provider.starts.append(start)
            provider.lastHandle += 1
            let page =
                start.method == .browser
                ? BegunSignIn.Prompt.browser(address: "https://login.example/page")
                : .deviceCode(code: "ABCD", address: "https://login.example/device", completeAddress: nil)
            let begun = BegunSignIn(handle: "handle \(provider.lastHandle)", prompt: page, lifetime: .seconds(600))
            question(.signInBegan(name, provider.error.map { .failure($0) } ?? .success(begun)))
        case .completeSignIn(let name, _, let person): question(.signedIn(name, provider.signIn(person, at: now)))
        case .pollSignIn(let name, _):
            provider.polls += 1
            question(.signedIn(name, provider.poll(at: now)))
        case .cancelSignIn(let handle): provider.cancelled.append(handle)
        case .renew(let number, let record, let scopes, let mayBeUsed):
            provider.renewals.append((record, scopes, mayBeUsed))
            if let outcome = provider.renew(record, scopes, at: now) { question(.renewed(number, outcome)) }
        case .tellSessionEnd(let number, let record, let keepsSession):
            if keepsSession { provider.revocations.append(record) } else { provider.ends.append(record) }
            if !provider.hangs { question(.sessionEndTold(number, provider.error)) }
        case .endLogins(let sessions): endedLogins.append(sessions)
        case .allowShutdown: allowedShutdowns += 1
        case .journal(let entry): journal.append(entry)
        case .note(_, let text, _): notes.append(text)
        }
    }

    /// Accepts the password "right" for each user. A name may contain a tenant: `ada@contoso`.
    private func authenticate(_ credentials: SignInRequest) -> Result<AuthenticatedIdentity, IdentityError> {
        let (name, isRight): (String, Bool) =
            switch credentials {
            case .password(let username, let password): (username, password?.isEqual(to: Secret("right")) == true)
            case .badge(let number, let pin): (badges[number.text] ?? "", pin.isEqual(to: Secret("1234")))
            case .pin(let username, let pin): (username, pin.isEqual(to: Secret("1234")))
            }
        guard isRight, !name.isEmpty else { return .failure(.invalidGrant) }
        let isAdministrator = administrators.contains(name)
        let groups = PersonGroups.known(groups[name] ?? [])
        return .success(AuthenticatedIdentity(account: .named(name), isAdministrator: isAdministrator, groups: groups))
    }

    func question(_ answer: Event) {
        if holdsProvider { questions.append(answer) } else { feed(answer) }
    }

    /// Delivers the delayed responses of the provider, and no longer delays new ones.
    func letProviderAnswer() {
        holdsProvider = false
        let answers = questions
        questions = []
        for answer in answers { feed(answer) }
    }

    /// Finishes the delayed batch: it fails if ``diskMode`` is `fails`, and is committed otherwise.
    func finishWriting() {
        guard let batch = held else { return }
        held = nil
        if case .fails(let reason) = diskMode {
            disk.fail(batch)
            happenings.append(.notCommitted)
            feed(.commitFailed(batch, reason))
        } else {
            disk.commit(batch)
            batches.append(batch)
            happenings.append(.committed)
            feed(.committed(batch.number))
        }
    }

    // MARK: Callers

    func app(
        _ name: String?,
        user: UInt32 = 1000,
        executable: String = "/usr/bin/app",
        unit: String? = nil,
        isAdministrator: Bool = false
    ) -> App {
        lastConnection += 1
        let connection = ":1.\(lastConnection)"
        let caller = Caller(
            connection: connection,
            credentials: AppCredentials(user: user, executable: executable, unit: unit),
            process: UInt32(lastConnection),
            isAdministrator: isAdministrator
        )
        callers[connection] = caller
        feed(.arrived(caller))
        return App(connection: connection, name: name)
    }

    /// A program from before the broker's restart calls the new broker for the first time.
    func reconnect(_ app: App) { callers[app.connection].map { feed(.arrived($0)) } }

    var administrator: App { app(nil, user: 0, isAdministrator: true) }

    func quit(_ app: App) { feed(.left(app.connection, mark: CleanupLedger.newMark())) }

    /// Sends a request of the app. Returns the request's number.
    @discardableResult
    func send(_ app: App, _ call: Request.Call, isInteractive: Bool = false) -> UInt64 {
        lastNumber += 1
        let method = "\(call)".prefix { $0 != "(" }
        let request = Request(
            number: lastNumber,
            connection: app.connection,
            claimed: app.name,
            call: call,
            method: String(method),
            isInteractive: isInteractive
        )
        feed(.request(request))
        return request.number
    }

    /// - Throws: ``Refusal``; ``NotAnswered``.
    func answer(_ number: UInt64) throws -> BrokerProtocol.Fields {
        guard let reply = replies[number] else { throw NotAnswered() }
        return try reply.get()
    }

    func refusal(_ number: UInt64) -> Refusal? {
        if case .failure(let refusal)? = replies[number] { refusal } else { nil }
    }

    /// - Throws: ``Refusal``; ``NotAnswered``.
    @discardableResult
    func ask(_ app: App, _ call: Request.Call) throws -> BrokerProtocol.Fields { try answer(send(app, call)) }
}

extension Account {
    /// The account of a user of a virtual device: `ada` or `ada@tenant`.
    static func named(_ name: String) -> Account {
        let parts = name.split(separator: "@", maxSplits: 1).map(String.init)
        let tenant = parts.count == 2 ? parts[1] : "t"
        return Account(identifier: "\(parts.first ?? name).\(tenant)", username: name)
    }
}
