import BrokerCore
import DBus
import DeviceConfiguration
import Foundation
import Identity
@_spi(Extensions) import SharedDevice
import SharedDeviceBroker

/// Knows what has really happened, from all messages, and reports when the broker or an app breaks a promise. It relies
/// on the broker's actions, not on its statements.
struct Oracle {
    /// The cleanup of a session that an app of one user owes.
    struct Debt: Hashable {
        let session: UInt64
        let home: Int
    }

    private(set) var violation: String?
    /// The broken promise, without particulars.
    private(set) var kind = ""

    /// For each session, the homes and connections that were given its account.
    var given: [UInt64: [Int: Set<String>]] = [:]
    var gone: Set<String> = []
    var receipts: Set<Debt> = []
    var receiptsOn: [Debt: Set<String>] = [:]
    var waived: Set<Debt> = []
    /// Debts of processes that lost their connection and ended before a call on the next one.
    var unheard: Set<Debt> = []
    /// Sessions whose account names the broker has dropped because their debts are too old. Without a name an app
    /// cannot repeat the cleanup.
    var nameless: Set<UInt64> = []
    /// Sessions up to this number are over.
    var over: UInt64 = 0
    /// The same, limited to what survives the broker's end, and to what survives a power cut.
    var overForBroker: UInt64 = 0
    var overForPower: UInt64 = 0
    var noted: UInt64 = 0
    /// For each broadcast that was decided but not yet sent, the last session that was over by then.
    var announced: [UInt64] = []
    var endedAt: [UInt64: Duration] = [:]
    var expired: Set<UInt64> = []
    var wasPowerCut = false
    var clockSetAt: Duration?
    /// The age of a round that began before this time is uncertain: across a restart only the wall clock measures it,
    /// and the clock was set then.
    var roundsDoubtfulUntil: Duration?
    var hasManyUsers = false
    var policy = DevicePolicy()
    /// The requests that the broker has not answered yet, by number.
    var requests: [UInt64: Request] = [:]
    var attempts: [UInt32: [String: Int]] = [:]
    var refused: [String: Int] = [:]
    var minute: Int64 = 0
    var lastRevision: UInt64?
    var provider = ProviderTruth()
    var spent = SpentLogins()
    var use: LastUse?
    var ends = SessionEndTruth()
    var lock = LockTruth()

    mutating func fail(_ kind: String, _ text: String) {
        guard violation == nil else { return }
        self.kind = kind
        violation = "\(kind): \(text)"
    }

    // MARK: Actions of the shells

    mutating func left(_ connection: String) { gone.insert(connection) }

    mutating func announced(isNoted: Bool) {
        guard !announced.isEmpty else { return }
        let level = announced.removeFirst()
        if isNoted { overForBroker = max(overForBroker, level) }
    }

    /// A state without an account was noted.
    mutating func hasNoted(_ state: DeviceState) { noted = max(noted, state.epoch - 1) }

    mutating func committed(_ batch: Batch, _ world: World) {
        provider.committed(batch)
        guard let device = batch.device, device.epoch > 0 else { return }
        overForBroker = max(overForBroker, device.epoch - 1)
        overForPower = max(overForPower, device.epoch - 1)
    }

    mutating func notCommitted(_ batch: Batch) {
        if batch.device != nil { overForPower = max(overForPower, noted) }
    }

    mutating func configured(
        _ content: ManagedConfigurationFile.Content?,
        kept: ManagedConfiguration?,
        at now: Duration
    ) {
        // Once the configuration uses logins again, each login may sign in again.
        defer { if policy.identity != .loginSession { spent.forget() } }
        ends.isConfigured = true
        ends.disturbedAt = now
        switch content {
        case .present(let configuration): policy = DevicePolicy(configuration, hasManyUsers: hasManyUsers)
        case .missing: policy = DevicePolicy(ManagedConfiguration(), hasManyUsers: hasManyUsers)
        case nil:
            ends.isConfigured = kept != nil
            if let kept { policy = DevicePolicy(kept, hasManyUsers: hasManyUsers) } else { policy.isConfigured = false }
        }
    }

    mutating func ended(isPowerCut: Bool, _ world: World) {
        wasPowerCut = wasPowerCut || isPowerCut
        requests = [:]
        provider.heededEnds = []
    }

    /// The broker has read its disk.
    mutating func started(_ state: inout BrokerState, _ world: World) {
        defer { wasPowerCut = false }
        lastRevision = nil
        announced = []
        roundsDoubtfulUntil = clockSetAt
        defer { startedProvider(state, world) }
        startedEnds(state)
        startedLock(state, world)
        use = state.device.account.map { _ in
            LastUse(session: state.device.epoch, at: world.now.uptime, isKnown: false)
        }
        let open = state.device
        if let last = given.keys.max(), last > open.epoch { return fail("a session was forgotten", "\(last)") }
        guard open.account != nil else {
            over = open.epoch == 0 ? 0 : open.epoch - 1
            overForBroker = min(overForBroker, over)
            noted = min(noted, over)
            return note(over, world)
        }
        if open.epoch <= (wasPowerCut ? overForPower : overForBroker) {
            return fail(
                "a session came back",
                "\(open.epoch), after \(wasPowerCut ? "a power cut" : "the broker's end")"
            )
        }
        // The threat model allows the session to return in this case.
        over = open.epoch - 1
        overForBroker = min(overForBroker, over)
        noted = min(noted, over)
        endedAt = endedAt.filter { $0.key <= over }
        receipts = receipts.filter { $0.session <= over }
        receiptsOn = receiptsOn.filter { $0.key.session <= over }
        // No app was told that this session had ended.
        spent.remove(ofSession: open.epoch)
        note(over, world)
    }

    private mutating func note(_ over: UInt64, _ world: World) {
        for session in given.keys where session <= over && endedAt[session] == nil {
            endedAt[session] = world.now.uptime
        }
    }

    // MARK: Events and effects

    mutating func after(
        _ event: Event,
        _ effects: [Effect],
        _ before: DeviceState,
        _ state: BrokerState,
        _ world: World
    ) {
        if case .request(let request) = event { heard(request, effects, before, state, world) }
        for effect in effects {
            switch effect {
            case .noteState(let next):
                over = max(over, next.epoch - 1)
                note(over, world)
            case .announce: announced.append(over)
            case .reply(let number, let result):
                guard let request = requests.removeValue(forKey: number) else { break }
                replied(request, Int(number >> 32), result.map(\.fields), state, world)
            case .journal(let entry): entered(entry, world)
            case .note(_, let text, let details):
                if Self.isMarked(text) || details.values.contains(where: Self.isMarked) {
                    fail("a password is in the log", text)
                }
            case .commit(let batch):
                if batch.log.count > 5000 { fail("bounds", "\(batch.log.count) entries of the log in one transaction") }
            default: break
            }
        }
    }

    static func isMarked(_ text: String) -> Bool {
        // The second UTF-8 byte of the mark. Names and identifiers in the simulation are ASCII.
        text.utf8.contains(0xA4)
    }

    private mutating func heard(
        _ request: Request,
        _ effects: [Effect],
        _ before: DeviceState,
        _ state: BrokerState,
        _ world: World
    ) {
        requests[request.number] = request
        let index = Int(request.number >> 32)
        switch request.call {
        case .report(.finished, let session, _, _, _):
            guard let home = world.slots[index].home, session <= over else { break }
            let debt = Debt(session: session, home: home)
            receipts.insert(debt)
            receiptsOn[debt, default: []].insert(request.connection)
        case .enforced(let app, let user, let sessions, _, nil) where index == World.enforcer:
            // Judged by the data that remains, not by the enforcer's report.
            for (home, participant) in Setting.homes.enumerated()
            where participant == Participant(app: app, user: user) && world.homes[home].sessions.isEmpty {
                for session in sessions where session <= over {
                    if state.ledger.parts[session]?[participant]?.progress == .enforced {
                        receipts.insert(Debt(session: session, home: home))
                    }
                }
            }
        case .waive(let app, let user, _, _) where world.slots[index].user == 0:
            for (number, parts) in state.ledger.parts {
                for (home, participant) in Setting.homes.enumerated()
                where participant.app == app && (user ?? participant.user) == participant.user
                    && parts[participant]?.progress == .waived
                { waived.insert(Debt(session: number, home: home)) }
            }
        case .signOut(_, let session?):
            // The session may have ended at the same time for another reason.
            let app = world.slots[index].home.map { Setting.homes[$0].app }
            let isEnded = effects.contains { effect in
                guard case .journal(let entry) = effect else { return false }
                return entry.event == .signedOut && entry.session == before.epoch && entry.detail == app
            }
            if before.account != nil, before.epoch != session, isEnded {
                fail("a late sign-out ended a later session", "\(before.epoch), where \(session) was meant")
            }
        case .signIn(let credentials, _, _, _):
            attempts[world.slots[index].user, default: [:]][credentials.username ?? "", default: 0] += 1
        default: break
        }
    }

    private mutating func entered(_ entry: AuditEntry, _ world: World) {
        if let detail = entry.detail, Self.isMarked(detail) { fail("a password is in the log", detail) }
        switch entry.event {
        case .signedIn: signedIn(entry, world)
        case .expired:
            guard let session = entry.session else { break }
            let age = world.now.uptime - (endedAt[session] ?? .zero)
            if !isDoubtful(round: session), endedAt[session] != nil, let timeout = policy.cleanup.timeout, age < timeout
            {
                fail("a round expired early", "\(session), after \(age)")
            }
            expired.insert(session)
        case .refused:
            let now = world.now.uptime.components.seconds / 60
            if now != minute { (minute, refused) = (now, [:]) }
            let key = "\(entry.app ?? "") \(entry.detail ?? "")"
            refused[key, default: 0] += 1
            if refused[key, default: 0] > 110 { fail("bounds", "the log grows without end: \(key)") }
        default: break
        }
    }

    /// Whether the broker cannot know how long the round has been open.
    private func isDoubtful(round session: UInt64) -> Bool {
        roundsDoubtfulUntil.map { (endedAt[session] ?? .zero) <= $0 } ?? false
    }

    /// Checks that the configuration and the debts of earlier sessions permit the sign-in.
    private mutating func signedIn(_ entry: AuditEntry, _ world: World) {
        guard policy.isConfigured, policy.mode == .shared else {
            return fail("an account was signed in", "no valid configuration says that the device is shared")
        }
        if let tenant = policy.tenantIdentifier, entry.account?.hasSuffix("." + tenant) != true {
            return fail("an account was signed in", "\(entry.account ?? "?") is not of \(tenant)")
        }
        if let allowed = policy.allowedUsers, !allowed.users.contains(entry.accountName ?? "") {
            return fail("an account was signed in", "\(entry.account ?? "?") is not allowed")
        }
        guard policy.cleanup.isStrict || policy.cleanup.timeout != nil else { return }
        for debt in debts() {
            let isPast =
                policy.cleanup.timeout != nil && (expired.contains(debt.session) || isDoubtful(round: debt.session))
            if !isPast { return fail("an account was signed in", "home \(debt.home) owes session \(debt.session)") }
        }
    }

    /// The debts that follow from the accounts given to apps and from their receipts.
    func debts() -> [Debt] {
        var found: [Debt] = []
        for (session, homes) in given where session <= over {
            for home in homes.keys {
                let debt = Debt(session: session, home: home)
                if !receipts.contains(debt), !waived.contains(debt) { found.append(debt) }
            }
        }
        return found
    }

    private mutating func replied(
        _ request: Request,
        _ index: Int,
        _ result: Result<BrokerProtocol.Fields, Refusal>,
        _ state: BrokerState,
        _ world: World
    ) {
        let slot = world.slots[index]
        switch result {
        case .failure(let refusal):
            if request.call.isSignOut, refusal == .failed(World.fullDisk) {
                fail("a sign-out was said to have failed", refusal.description)
            }
            if refusal.code == .tooManyAttempts, slot.home != nil {
                let own = attempts[slot.user] ?? [:]
                if own.values.allSatisfy({ $0 < 5 }), own.values.reduce(0, +) < 50, waiting(slot.user, world) < 4 {
                    fail("others lock an app out", "user \(slot.user) after \(own)")
                }
            }
        case .success(let fields):
            if fields["account"] != nil { gave(fields, request, index, state, world) }
            if let value = fields["token"]?.fieldsValue?["value"]?.stringValue { gaveToken(value, world) }
            switch request.call {
            case .activity:
                // Input after the limit does not count where the screen is then locked.
                let isLate = use.map { use in
                    policy.schedule.locked != nil
                        && policy.schedule.inactivity.map { world.now.uptime >= use.at + $0 } ?? false
                }
                if use?.session == state.device.epoch, isLate != true {
                    use?.at = world.now.uptime
                    use?.isKnown = true
                }
            case .signOut, .signOutAnyone:
                guard let session = fields["session"]?.unsignedValue else { break }
                if slot.user == 6666, policy.requiresEnrolment || slot.user != 0 && isAdministrators(request.call) {
                    fail("a stranger signed an account out", "session \(session)")
                }
                guard fields["stored"]?.booleanValue != false else { break }
                overForPower = max(overForPower, session)
                if world.disk.device.epoch <= session {
                    fail("a response came before its transaction", "sign-out of \(session)")
                }
            case .providerEvents where hasManyUsers:
                if index != World.service { fail("a stranger spoke for the provider", request.method) }
            case .overdue, .enforced:
                if index != World.enforcer { fail("a stranger did what only the enforcement may", request.method) }
            case .waive, .join, .leave, .runningApps:
                if slot.user != 0 { fail("a stranger did what only administrators may", request.method) }
            default: break
            }
        }
    }

    private func isAdministrators(_ call: Request.Call) -> Bool {
        if case .signOutAnyone = call { true } else { false }
    }

    private func waiting(_ user: UInt32, _ world: World) -> Int {
        requests.values.count { request in
            guard case .signIn = request.call else { return false }
            return world.slots[Int(request.number >> 32)].user == user
        }
    }

    private mutating func gave(
        _ fields: BrokerProtocol.Fields,
        _ request: Request,
        _ index: Int,
        _ state: BrokerState,
        _ world: World
    ) {
        let slot = world.slots[index]
        guard let session = fields["epoch"]?.unsignedValue, let account = try? Account(fields["account"] ?? .uint64(0))
        else { return fail("an answer makes no sense", request.method) }
        guard let home = slot.home else {
            if policy.requiresEnrolment { fail("a stranger was given an account", request.method) }
            return
        }
        guard session > over, state.device.epoch == session else {
            return fail("an app was given an account that was signed out", "\(session) by \(request.method)")
        }
        if case .signIn(let credentials, _, _, _) = request.call,
            account.identifier != Setting.account(credentials.username ?? "").identifier
        {
            return fail("an app was given another's account", account.username)
        }
        guard world.disk.device.epoch == session, world.disk.device.account == account else {
            return fail("a response came before its transaction", "session \(session)")
        }
        guard world.disk.parts[session]?[Setting.homes[home]] != nil else {
            return fail("a response came before its transaction", "home \(home) may hold data of \(session)")
        }
        guard world.mayUse(home, account) else {
            return fail(
                "an app was given the account of a user whom it is not for",
                "home \(home), \(account.username)"
            )
        }
        if policy.cleanup.isStrict, debts().contains(where: { $0.home == home }) {
            fail("an app that owes was given an account", "home \(home), session \(session)")
        }
        given[session, default: [:]][home, default: []].insert(request.connection)
    }

    // MARK: Use

    static let moment = Duration.seconds(1)

    /// Checks that an idle session ends after the configured time: not before, and not later even if the clock is set.
    mutating func judgeUse(_ effects: [Effect], _ state: BrokerState, _ world: World) {
        let now = world.now.uptime
        for case .journal(let entry) in effects
        where entry.event == .signedOut && entry.detail?.hasPrefix("inactivity") == true {
            guard let use, use.isKnown, use.session == entry.session, clockSetAt.map({ $0 < use.at }) ?? true,
                let most = policy.schedule.inactivity, now + Self.moment < use.at + most
            else { continue }
            fail("a session ended while it was used", "\(use.session), \(now - use.at) after its last use")
        }
        guard state.device.account != nil else {
            use = nil
            return
        }
        if use?.session != state.device.epoch { use = LastUse(session: state.device.epoch, at: now) }
        guard lock.locked == nil else { return }
        guard let use, let most = policy.schedule.inactivity else { return }
        var end = use.at + most
        // The screen is asked to lock at the first event after a sleep.
        if policy.schedule.locked != nil { end = max(end, ends.disturbedAt) + LockTruth.showPatience }
        guard now > end + Self.moment else { return }
        fail("an idle session goes on", "\(use.session), \(now - use.at) after its last use")
    }

    // MARK: Data

    /// Checks the invariant that holds at all times: the owner of any data is signed in, or the removal of the data is
    /// owed.
    mutating func check(_ world: World) {
        guard violation == nil, let revision = world.broker?.revision else { return }
        if lastRevision != revision, let ledger = world.broker?.ledger {
            lastRevision = revision
            checkLedger(ledger, world)
        }
        checkEnforcement(world)
        for home in world.homes.indices {
            for store in world.homes[home].data where !store.isEmpty {
                for session in store { checkData(session, home, world) }
            }
        }
    }

    private mutating func checkLedger(_ ledger: CleanupLedger, _ world: World) {
        for (number, session) in ledger.sessions where session.account == nil && session.outcome != .complete {
            nameless.insert(number)
        }
        for (session, homes) in given where session <= over {
            for (home, connections) in homes {
                let debt = Debt(session: session, home: home)
                guard !waived.contains(debt) else { continue }
                let part = ledger.parts[session]?[Setting.homes[home]]
                let isSettled = part.map { $0.progress?.isSettled == true } ?? true
                if isSettled, !receipts.contains(debt) {
                    return fail("a debt was lost", "home \(home), session \(session)")
                }
                guard isSettled, part != nil else { continue }
                let owing = connections.subtracting(gone).subtracting(receiptsOn[debt] ?? [])
                if !owing.isEmpty {
                    return fail("a round went on without a process", "\(owing.sorted()), session \(session)")
                }
            }
        }
    }

    /// Checks that no sign-in happens while the enforcer stops an app or deletes its data, because the next user's data
    /// would be deleted too. Neither a waiver nor a new policy changes that.
    private mutating func checkEnforcement(_ world: World) {
        guard world.broker?.device.account != nil else { return }
        for work in world.enforcer?.work ?? [] where work.stage == .stop || work.stage == .delete {
            return fail(
                "an account was signed in while data was deleted",
                "\(work.participant), sessions \(work.sessions.sorted())"
            )
        }
    }

    private mutating func checkData(_ session: UInt64, _ home: Int, _ world: World) {
        guard let device = world.broker?.device else { return }
        if device.epoch == session, device.account != nil { return }
        let debt = Debt(session: session, home: home)
        let part = world.broker?.ledger.parts[session]?[Setting.homes[home]]
        if let part, part.progress?.isSettled != true { return }
        if waived.contains(debt) || nameless.contains(session) || unheard.contains(debt)
            || isInDoubt(session, home, world)
        {
            return
        }
        fail("data was left without a debt", "home \(home), session \(session)")
    }

    /// Whether a process still shows a session of which the broker has lost track, because the process ended its
    /// connection or the broker was restarted. The process cleans up on its next call.
    func isInDoubt(_ session: UInt64, _ home: Int, _ world: World) -> Bool {
        world.slots.contains { $0.home == home && $0.process?.held.contains { $0.epoch == session } == true }
    }
}

struct LastUse {
    let session: UInt64
    var at: Duration
    /// Whether this run of the broker has seen the use. The disk may have lost a use that an earlier run has seen. Then
    /// the sign-out is early, or late by the time during which the broker was away.
    var isKnown = true
}
