import BrokerCore
import DBus
import DeviceConfiguration
import Foundation
import Identity
@_spi(Extensions) import SharedDevice

/// The organisation's provider: the open sessions, their refresh tokens and the undelivered events.
struct SimulatedProvider {
    /// The provider's record of a sign-in. Events name the sign-in by its number.
    struct Session {
        let person: String
        /// On the monotonic clock.
        let openedAt: Duration
        var token: Int
        var isRevoked = false
        /// An old token was used, which ends the session too.
        var isReused = false
        /// The device has reported the end of the session.
        var isEnded = false
        var isOpen: Bool { !isRevoked && !isReused && !isEnded }
    }

    /// A request to the provider, which the identity service sends.
    enum Question {
        case begin(String, only: String?)
        case complete(String, handle: String, person: String)
        /// The response to `complete`, while it is in flight.
        case opened(String, ProviderSignIn)
        case renew(UInt64, ProviderRecord, mayBeUsed: Bool)
        case end(UInt64, ProviderRecord)
    }

    /// An event, and the session that it is really about.
    struct Told {
        let event: ProviderEvent
        let session: Int?

        func moved(by seconds: Double) -> Told { Told(event: event.moved(by: seconds), session: session) }
    }

    var sessions: [Int: Session] = [:]
    var lastToken = 0
    var questions: [Question] = []
    /// The sign-ins that the service knows, with the user who is required for each.
    var handles: [String: String?] = [:]
    var lastHandle = 0
    /// The events that the broker has yet to receive, and the events that a restart of the service delivers again.
    var events: [Told] = []
    var unacknowledged: [Told] = []
    /// The report that has no response yet.
    var report: (number: UInt64, told: Told)?
    var revokedAt: [String: Date] = [:]
    /// The user who answers the prompt, by the number of the prompt's call.
    var asked: [UInt64: (person: String, goesOn: Bool)] = [:]

    mutating func open(_ person: String, at now: Duration) -> (Int, ProviderRecord) {
        lastToken += 1
        let number = lastToken
        sessions[number] = Session(person: person, openedAt: now, token: number)
        return (number, Self.record(number, person, token: number))
    }

    /// Moves all dates when the device's clock is set. The simulation expresses them by that clock, while the
    /// provider's clock is always right.
    mutating func clockIsSet(by seconds: Double) {
        events = events.map { $0.moved(by: seconds) }
        unacknowledged = unacknowledged.map { $0.moved(by: seconds) }
        if let report { self.report = (report.number, report.told.moved(by: seconds)) }
        revokedAt = revokedAt.mapValues { $0 + seconds }
    }

    static func record(_ session: Int, _ person: String, token: Int) -> ProviderRecord {
        ProviderRecord(
            person: ProviderRecord.Person(issuer: Setting.issuer, subject: person),
            session: "\(session)",
            content: Secret("\(token)")
        )
    }
}

extension ProviderEvent {
    func moved(by seconds: Double) -> ProviderEvent {
        ProviderEvent(kind, issuer: issuer, subject: subject, session: session, date: date.map { $0 + seconds })
    }
}

extension ProviderRecord {
    var simulated: (session: Int, token: Int) { (session.flatMap { Int($0) } ?? 0, Int(content.text) ?? 0) }
}

extension World {
    private static let away = IdentityError(.providerUnavailable, "the provider cannot be reached")

    // MARK: Requests

    /// The provider responds, or the request or the response is lost.
    func organisationAnswers() {
        guard !organisation.questions.isEmpty else { return }
        let question = organisation.questions.remove(at: random.below(organisation.questions.count))
        answer(question, isLost: providerMode == .fails)
    }

    private func answer(_ question: SimulatedProvider.Question, isLost: Bool) {
        let hasArrived = !isLost || random.chance(50)
        switch question {
        case .begin(let name, let only):
            guard !isLost else { return feed(.signInBegan(name, .failure(Self.away))) }
            organisation.lastHandle += 1
            let handle = "handle \(organisation.lastHandle)"
            organisation.handles[handle] = .some(only)
            let begun = BegunSignIn(handle: handle, prompt: .browser(address: "page"), lifetime: .seconds(600))
            feed(.signInBegan(name, .success(begun)))
        case .complete(let name, let handle, let person):
            guard let only = organisation.handles.removeValue(forKey: handle) else {
                return feed(.signedIn(name, .failure(IdentityError(.loginExpired, "the sign-in is over"))))
            }
            guard hasArrived else { return feed(.signedIn(name, .failure(Self.away))) }
            guard only == nil || only == person else {
                return feed(.signedIn(name, .failure(IdentityError(.authenticationFailed, "another person"))))
            }
            let (number, record) = organisation.open(person, at: now.uptime)
            note("the provider opens session \(number) of \(person)")
            guard !isLost else { return feed(.signedIn(name, .failure(Self.away))) }
            let signIn = ProviderSignIn(account: Setting.account(person), record: record, token: token(number))
            tellAgain(person)
            guard random.chance(50) else { return feed(.signedIn(name, .success(signIn))) }
            organisation.questions.append(.opened(name, signIn))
            if random.chance(20) { revoke(person) }
            return
        case .opened(let name, let signIn): feed(.signedIn(name, isLost ? .failure(Self.away) : .success(signIn)))
        case .renew(let number, let record, let mayBeUsed):
            let outcome = hasArrived ? renewed(record, mayBeUsed) : nil
            guard !isLost, let outcome else {
                // The service does not always know that a request did not arrive.
                let isKnown = !hasArrived && random.chance(50)
                return feed(.renewed(number, .unavailable(Self.away, mayBeUsed: isKnown ? mayBeUsed : true)))
            }
            feed(.renewed(number, outcome))
        case .end(let number, let record):
            if hasArrived { organisation.sessions[record.simulated.session]?.isEnded = true }
            feed(.sessionEndTold(number, isLost ? Self.away : nil))
        }
    }

    private func token(_ number: Int) -> AccessToken {
        AccessToken(value: "provider \(number)", scopes: ["s"], expiresAt: now.wall + 3600)
    }

    /// Rotates the refresh token. Each one is valid once, and its reuse ends the session.
    private func renewed(_ record: ProviderRecord, _ mayBeUsed: Bool) -> RenewalOutcome {
        let (number, token) = record.simulated
        guard var session = organisation.sessions[number], session.isOpen, session.token == token else {
            note("the provider refuses token \(token) of session \(number)")
            if organisation.sessions[number]?.token != token { organisation.sessions[number]?.isReused = true }
            return mayBeUsed ? .reauthenticationNeeded : .sessionOver
        }
        organisation.lastToken += 1
        session.token = organisation.lastToken
        organisation.sessions[number] = session
        return .renewed(
            self.token(session.token),
            SimulatedProvider.record(number, session.person, token: session.token)
        )
    }

    /// Drops all requests and responses because the broker has ended. About half of the requests were carried out.
    func loseAnswersOfProvider() {
        for question in organisation.questions where random.chance(50) {
            switch question {
            case .renew(_, let record, let mayBeUsed): _ = renewed(record, mayBeUsed)
            case .end(_, let record): organisation.sessions[record.simulated.session]?.isEnded = true
            case .complete(_, _, let person): _ = organisation.open(person, at: now.uptime)
            case .begin, .opened: break
            }
        }
        organisation.questions = []
        organisation.handles = [:]
    }

    // MARK: The identity service

    /// Kills the identity service, which the bus restarts. Its pending requests are lost, and events that it has not
    /// acknowledged are delivered again.
    func killService() {
        note("the service that speaks to the provider is killed")
        let questions = organisation.questions
        organisation.questions = []
        organisation.handles = [:]
        organisation.events += organisation.unacknowledged
        organisation.unacknowledged = []
        if let told = organisation.report?.told { organisation.events.append(told) }
        organisation.report = nil
        for question in questions where broker != nil { answer(question, isLost: true) }
    }

    var serviceCanTell: Bool {
        guard !organisation.events.isEmpty, isBusUp, broker != nil else { return false }
        return organisation.report.map { unanswered[$0.number] == nil } ?? true
    }

    /// Reports the next event. An event whose report has no response is delivered again.
    func serviceTells() {
        if let told = organisation.report?.told { organisation.events.append(told) }
        let told = organisation.events.remove(at: random.below(organisation.events.count))
        let number = send(Self.service, .providerEvents([told.event]))
        organisation.report = (UInt64(Self.service) << 32 | number, told)
    }

    func serviceHears(_ number: UInt64, _ result: Result<BrokerProtocol.Fields, Refusal>) {
        guard let report = organisation.report, report.number == number else { return }
        organisation.report = nil
        guard case .success = result else { return organisation.events.append(report.told) }
        oracle.heeded(report.told, self)
        // The provider does not always receive the acknowledgement.
        if report.told.session != nil, random.chance(40) { organisation.unacknowledged.append(report.told) }
    }

    /// Revokes all open sessions of a user, and delivers the event once or twice.
    func revoke(_ person: String) {
        let open = organisation.sessions.filter { $0.value.person == person && $0.value.isOpen }.keys.sorted()
        guard !open.isEmpty else { return }
        note("the provider ends the sessions \(open) of \(person)")
        organisation.revokedAt[person] = now.wall
        for number in open {
            organisation.sessions[number]?.isRevoked = true
            let event = ProviderEvent(
                .ended,
                issuer: Setting.issuer,
                subject: person,
                session: random.chance(30) ? "\(number)" : nil,
                date: now.wall
            )
            for _ in 0...random.below(2) {
                organisation.events.append(SimulatedProvider.Told(event: event, session: number))
            }
        }
    }

    /// Delivers an old revocation of the user's sessions again.
    private func tellAgain(_ person: String) {
        guard let date = organisation.revokedAt[person], random.chance(50) else { return }
        let event = ProviderEvent(.ended, issuer: Setting.issuer, subject: person, date: date)
        organisation.events.append(SimulatedProvider.Told(event: event, session: nil))
    }

    func networkIsBack() {
        guard oracle.policy.organisation != nil else { return }
        let event = ProviderEvent(.networkUp, issuer: Setting.issuer)
        organisation.events.append(SimulatedProvider.Told(event: event, session: nil))
    }

    // MARK: The prompt

    func signInAtPrompt(_ person: String, goesOn: Bool, patience: Int) {
        var wish = Request.PromptWish()
        wish.redirect = "http://127.0.0.1:1234/callback"
        wish.patience = .seconds(patience)
        let number = promptCalls(.beginSignIn(wish))
        organisation.asked[number] = (person, goesOn)
    }

    @discardableResult
    private func promptCalls(_ call: Request.Call) -> UInt64 {
        UInt64(Self.prompt) << 32 | send(Self.prompt, call, claiming: slots[Self.prompt].name)
    }

    func promptHears(_ number: UInt64, _ result: Result<BrokerProtocol.Fields, Refusal>) {
        guard let (person, goesOn) = organisation.asked.removeValue(forKey: number),
            case .success(let fields) = result, let name = fields["request"]?.stringValue
        else { return }
        promptCalls(goesOn ? .completeSignIn(name: name, .query(person)) : .cancelSignIn(label: name))
    }
}
