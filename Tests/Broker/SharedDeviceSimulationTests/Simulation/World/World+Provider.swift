import DBusTransport
import DeviceConfiguration
import Foundation
import Identity
import SharedDevice
import SharedDeviceBroker

/// The organisation's provider: who is truly signed in there, by which refresh token, and what it has still to tell.
struct SimulatedProvider {
    /// What the provider knows of a sign-in. Its number is the name that events have for it.
    struct Session {
        let person: String
        /// The refresh token that counts.
        var token: Int
        /// The provider has ended it.
        var isRevoked = false
        /// An old token was used, which ends it as well.
        var isReused = false
        /// The device has said that it is over.
        var isEnded = false
        var isOpen: Bool { !isRevoked && !isReused && !isEnded }
    }

    /// A question that the process beside the broker carries out.
    enum Question {
        case begin(String, only: String?)
        case complete(String, handle: String, person: String)
        /// The answer to it, which is on its way.
        case opened(String, ProviderSignIn)
        case renew(UInt64, ProviderRecord, mayBeUsed: Bool)
        case end(UInt64, ProviderRecord)
    }

    /// An event, and the sign-in that it is truly about.
    struct Told {
        let event: ProviderEvent
        let session: Int?
    }

    var sessions: [Int: Session] = [:]
    var lastToken = 0
    var questions: [Question] = []
    /// Sign-ins that the process knows, and whom each has to be of.
    var handles: [String: String?] = [:]
    var lastHandle = 0
    /// What the broker is to hear, and what it hears again when the process is started anew.
    var events: [Told] = []
    var unacknowledged: [Told] = []
    /// The report that has no answer yet.
    var report: (number: UInt64, told: Told)?
    /// When somebody's sessions were ended last.
    var revokedAt: [String: Date] = [:]
    /// Whom the prompt asks, by the number of its call.
    var asked: [UInt64: (person: String, goesOn: Bool)] = [:]

    mutating func open(_ person: String) -> (Int, ProviderRecord) {
        lastToken += 1
        let number = lastToken
        sessions[number] = Session(person: person, token: number)
        return (number, Self.record(number, person, token: number))
    }

    static func record(_ session: Int, _ person: String, token: Int) -> ProviderRecord {
        ProviderRecord(
            person: ProviderRecord.Person(issuer: Setting.issuer, subject: person),
            session: "\(session)",
            content: Secret("\(token)")
        )
    }
}

extension ProviderRecord {
    /// The provider's number of the session, and that of the refresh token.
    var simulated: (session: Int, token: Int) { (session.flatMap { Int($0) } ?? 0, Int(content.text) ?? 0) }
}

extension World {
    private static let away = IdentityError(.providerUnavailable, "the provider cannot be reached")

    // MARK: Questions

    /// The provider answers, or the answer is lost on its way, or the question was.
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
            let (number, record) = organisation.open(person)
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
                // Who has not reached the provider may know it, and may not.
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

    /// Rotation: each refresh token counts once, and one that comes again ends the session.
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

    /// Nobody hears the answers any more. What has arrived was carried out.
    func loseAnswersOfProvider() {
        for question in organisation.questions where random.chance(50) {
            switch question {
            case .renew(_, let record, let mayBeUsed): _ = renewed(record, mayBeUsed)
            case .end(_, let record): organisation.sessions[record.simulated.session]?.isEnded = true
            case .complete(_, _, let person): _ = organisation.open(person)
            case .begin, .opened: break
            }
        }
        organisation.questions = []
        organisation.handles = [:]
    }

    // MARK: The process beside the broker

    /// The process is killed, and the bus starts it again: what it was asked is lost, and events that it had not acknowledged come again.
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

    /// The service tells the next event. One whose report has no answer comes again.
    func serviceTells() {
        if let told = organisation.report?.told { organisation.events.append(told) }
        let told = organisation.events.remove(at: random.below(organisation.events.count))
        let number = slots[Self.service].calls.send(.providerEvents([told.event]))
        slots[Self.service].calls.sent = []
        organisation.report = (UInt64(Self.service) << 32 | number, told)
        send(Self.service, number, .providerEvents([told.event]), claiming: nil)
    }

    func serviceHears(_ number: UInt64, _ result: Result<BrokerProtocol.Fields, Refusal>) {
        guard let report = organisation.report, report.number == number else { return }
        organisation.report = nil
        guard case .success = result else { return organisation.events.append(report.told) }
        oracle.heeded(report.told, self)
        // The provider does not always hear of it.
        if report.told.session != nil, random.chance(40) { organisation.unacknowledged.append(report.told) }
    }

    /// The provider ends all that a person has open, and tells of it, once or more often.
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

    /// The end of what a person had open earlier is told once more, late.
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

    /// Somebody signs in on the provider's page, or closes it.
    func signInAtPrompt(_ person: String, goesOn: Bool, patience: Int) {
        var wish = Request.PromptWish()
        wish.redirect = "http://127.0.0.1:1234/callback"
        wish.patience = .seconds(patience)
        let number = promptCalls(.beginSignIn(wish))
        organisation.asked[number] = (person, goesOn)
    }

    @discardableResult
    private func promptCalls(_ call: Request.Call) -> UInt64 {
        let number = slots[Self.prompt].calls.send(call)
        slots[Self.prompt].calls.sent = []
        send(Self.prompt, number, call, claiming: slots[Self.prompt].name)
        return UInt64(Self.prompt) << 32 | number
    }

    func promptHears(_ number: UInt64, _ result: Result<BrokerProtocol.Fields, Refusal>) {
        guard let (person, goesOn) = organisation.asked.removeValue(forKey: number),
            case .success(let fields) = result, let name = fields["request"]?.stringValue
        else { return }
        promptCalls(goesOn ? .completeSignIn(name: name, .query(person)) : .cancelSignIn(label: name))
    }
}

// MARK: Promises

/// What the oracle knows of the device's sessions and the provider's.
struct ProviderTruth {
    /// The provider's session of each of the device's, and when the sign-in began by which the person proved who they are.
    var sessions: [UInt64: Int] = [:]
    var beganAt: [UInt64: Date] = [:]
    /// When each prompt's sign-in began.
    var prompts: [String: Date] = [:]
    /// The provider's sessions that a disk had.
    var keptSessions: Set<Int> = []
    /// Those of whose end the broker has said that it is heeded, since its start: the power may take a sign-out back, and then the check finds it.
    var heededEnds: Set<Int> = []

    mutating func committed(_ batch: Batch) {
        guard case .some(.some(let kept)) = batch.provider, let record = kept.record else { return }
        keptSessions.insert(record.simulated.session)
    }
}

extension Oracle {
    /// What went to and fro between the broker and the provider.
    mutating func judgeProvider(_ event: Event, _ effects: [Effect], _ state: BrokerState, _ world: World) {
        var opened: Int?
        var isNew = false
        var began = world.now.wall
        if case .signedIn(let name, .success(let signIn?)) = event {
            opened = signIn.record.simulated.session
            began = provider.prompts[name] ?? began
        }
        for effect in effects {
            switch effect {
            case .journal(let entry) where entry.event == .signedIn:
                isNew = true
                guard let session = entry.session else { break }
                // The number of a session that came to nothing is another's now, perhaps one without a provider.
                provider.sessions[session] = opened
                provider.beganAt[session] = began
            case .beginSignIn(let name, _): provider.prompts[name] = world.now.wall
            case .journal(let entry) where entry.event == .signedOut:
                if entry.detail?.hasPrefix("the provider has ended its session") == true {
                    signedOutByProvider(entry.session ?? 0, world)
                }
            case .renew(_, let record, _, let mayBeUsed):
                let (session, token) = record.simulated
                guard let truth = world.organisation.sessions[session], !truth.isRevoked, !truth.isEnded else { break }
                if truth.token != token, !mayBeUsed {
                    fail("a refresh token was used twice without a word", "\(token) of session \(session)")
                }
            default: break
            }
        }
        // The same person has signed in again, and the session of the device goes on.
        if let opened, !isNew, state.device.account != nil, state.providerRecord?.simulated.session == opened,
            let before = provider.sessions[state.device.epoch], before != opened
        {
            provider.sessions[state.device.epoch] = opened
            provider.beganAt[state.device.epoch] = began
        }
        if !isClockDoubtful, state.device.account != nil, let number = provider.sessions[state.device.epoch],
            provider.heededEnds.contains(number), state.providerRecord?.simulated.session == number
        {
            fail("somebody is signed in by a session whose end was heeded", "the provider's \(number)")
        }
    }

    private mutating func signedOutByProvider(_ session: UInt64, _ world: World) {
        guard !isClockDoubtful, let number = provider.sessions[session],
            let truth = world.organisation.sessions[number], !truth.isRevoked
        else { return }
        // The device itself has said that it is over, and then lost the sign-out with the power: the provider's word makes up for that.
        if truth.isEnded { return }
        // As far as the clocks of both may differ, an event of right before the sign-in counts, and so does one of during it.
        if let revoked = world.organisation.revokedAt[truth.person], let began = provider.beganAt[session],
            began.timeIntervalSince(revoked) <= 61
        {
            return
        }
        fail(
            truth.isReused ? "a lost answer signed somebody out" : "the provider's word ended another session",
            "session \(session), the provider's \(number)"
        )
    }

    /// The broker has answered that an event is heeded.
    mutating func heeded(_ told: SimulatedProvider.Told, _ world: World) {
        if let number = told.session { provider.heededEnds.insert(number) }
        guard !isClockDoubtful, let number = told.session, let broker = world.broker, broker.device.account != nil,
            provider.sessions[broker.device.epoch] == number
        else { return }
        fail("a session goes on that the provider has ended", "\(broker.device.epoch), the provider's \(number)")
    }

    mutating func gaveToken(_ value: String, _ world: World) {
        guard value.hasPrefix("provider "), let number = Int(value.dropFirst("provider ".count)) else { return }
        guard let kept = world.disk.provider?.record?.simulated.token, kept >= number else {
            return fail("a token came before its record was on the disk", value)
        }
    }

    /// At the end the provider knows of every session that is over.
    mutating func checkProviderEnd(_ world: World) {
        guard !isClockDoubtful, let broker = world.broker else { return }
        let open = broker.device.account.flatMap { _ in broker.providerRecord?.simulated.session }
        for number in provider.keptSessions.sorted() where number != open {
            if world.organisation.sessions[number]?.isOpen == true {
                return fail("the provider never hears that a session is over", "\(number)")
            }
        }
    }
}
