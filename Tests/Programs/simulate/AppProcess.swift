import Basics
import BrokerCore
import DBus
@_spi(Extensions) import SharedDevice

/// An app of one user, with the data that all of its processes share on the disk. The app forces each change of the
/// record to the disk, and each removal of user data before it reports the removal.
struct Home {
    static let stores = ["orders", "photos"]

    let participant: Participant
    var record = SessionRecord()
    var journal: CleanupJournal?
    /// The sessions whose data each store has.
    var data: [Set<UInt64>] = [[], []]
    /// Removed data whose removal was not forced to the disk. Only an app with a deliberate mistake has any.
    var unsynced: [Set<UInt64>] = [[], []]

    init(_ participant: Participant) { self.participant = participant }

    /// Changes the record as the library does: a change without news is not written.
    mutating func update<Value>(_ body: (inout SessionRecord) -> Value) -> Value {
        var changed = record
        let value = body(&changed)
        if changed.hasNews(since: record) { record = changed }
        return value
    }

    var sessions: Set<UInt64> { data[0].isEmpty ? data[1] : data[0].union(data[1]) }

    mutating func remove(_ sessions: [UInt64], from store: Int, isSynced: Bool) {
        if !isSynced { unsynced[store].formUnion(data[store].intersection(sessions)) }
        data[store].subtract(sessions)
    }

    mutating func cutPower() {
        for store in data.indices { data[store].formUnion(unsynced[store]) }
        unsynced = [[], []]
    }
}

struct Calls {
    private(set) var lastNumber: UInt64 = 0
    var sent: [(number: UInt64, call: Request.Call)] = []

    mutating func send(_ call: Request.Call) -> UInt64 {
        lastNumber += 1
        sent.append((lastNumber, call))
        return lastNumber
    }
}

/// A process of an app that uses the library `SharedDevice`: `SessionKeeper` calls the broker and keeps the record;
/// `AccountFollower` shows and hides the account and cleans up. The decisions about a record are the library's own
/// `SessionRecord` and `CleanupPlan`. The order of the calls is repeated here because the library spreads it over
/// tasks.
struct AppProcess {
    enum Purpose {
        case change
        /// To check that the session of a token is still open.
        case token(DeviceSession)
    }

    /// The current task of the keeper, which has one at a time.
    enum Keeper {
        case free
        case asks(UInt64, Purpose)
        /// Sends these receipts one by one. Then it asks for the purpose or, without a purpose, completes a cleanup.
        case reports(UInt64, [SessionRecord.Receipt], Purpose?)
    }

    enum Follower {
        case waits
        case cleans(CleanupPlan, [SessionRecord.Session])
        /// The steps are finished, and the record must be updated.
        case isClean([SessionRecord.Session])
        /// The receipts are in flight.
        case reports
    }

    enum Message {
        case broadcast
        case reply(UInt64, Result<BrokerProtocol.Fields, Refusal>)
        /// The call has failed without a response.
        case failed(UInt64)
        /// The connection was lost and re-established with another name.
        case reconnected
    }

    let home: Int
    var keeper = Keeper.free
    var follower = Follower.waits
    /// The session whose data the process shows and may store.
    var shown: UInt64?
    var told: DeviceSession?
    var held: [SessionRecord.Session] = []
    /// The ended sessions that the process still has to clean up.
    var stale: [SessionRecord.Session] = []
    /// The broker's marks for these sessions.
    var staleMarks: [UInt64: UInt64] = [:]
    /// The sessions whose receipts are in flight.
    var unconfirmed: [SessionRecord.Session] = []
    /// The journal of a failed attempt.
    var journal: CleanupJournal?
    var lastEpoch: UInt64 = 0
    var isStrict: Bool?
    var mustAsk = true
    var isFirst = true
    var retryAt: Duration?
    var backoff = Backoff(first: .seconds(1), longest: .seconds(60))
    var heard = 0
    /// The response to the last receipt, and the number of broadcasts received before the receipt was sent.
    var fresh: SessionAnswer?
    var reportedAfter = 0
    /// Pending token requests and sign-ins, with the number of broadcasts received before each.
    var tokens: [UInt64: Int] = [:]
    /// Sessions that came with a token and are queued for the keeper.
    var arrived: [(session: DeviceSession, isDoubtful: Bool)] = []
    /// How many of the next cleanup steps fail.
    var failures = 0
    let mutant: Mutant?

    private static let firstRetry = Duration.seconds(1)

    // MARK: Messages

    mutating func receive(_ message: Message, _ home: inout Home, _ calls: inout Calls, at now: Duration) {
        switch message {
        case .broadcast:
            heard += 1
            fresh = nil
            mustAsk = true
        case .reconnected:
            fresh = nil
            mustAsk = true
        case .failed(let number): replied(number, .failure(.failed("no answer")), isFailed: true, &home, &calls, now)
        case .reply(let number, let result): replied(number, result, isFailed: false, &home, &calls, now)
        }
    }

    private mutating func replied(
        _ number: UInt64,
        _ result: Result<BrokerProtocol.Fields, Refusal>,
        isFailed: Bool,
        _ home: inout Home,
        _ calls: inout Calls,
        _ now: Duration
    ) {
        if let before = tokens.removeValue(forKey: number) {
            guard case .success(let fields) = result, let session = try? DeviceSession(fields) else { return }
            arrived.append((session, heard != before))
            return
        }
        switch keeper {
        case .asks(number, let purpose):
            keeper = .free
            guard case .success(let fields) = result, let answer = try? SessionAnswer(fields) else {
                return failed(purpose, now)
            }
            answered(answer, purpose, &home, &calls)
        case .reports(number, let receipts, let purpose):
            keeper = .free
            guard case .success(let fields) = result else {
                if let purpose { return failed(purpose, now) }
                // Without a response the broker requests the receipt again. A refusal is retried.
                if isFailed { return followed() }
                return backOff(now)
            }
            fresh = try? SessionAnswer(fields)
            if heard != reportedAfter { fresh = nil }
            if fields["again"]?.booleanValue == true, purpose == nil {
                let again = unconfirmed.filter { $0.epoch == receipts.first?.epoch }
                home.update { $0.reopen(again) }
                stale += again
            }
            sendReceipts(Array(receipts.dropFirst()), then: purpose, &calls)
        default: break
        }
    }

    // MARK: The keeper

    private mutating func ask(_ purpose: Purpose, _ calls: inout Calls) {
        fresh = nil
        keeper = .asks(calls.send(.currentAccount), purpose)
    }

    private mutating func failed(_ purpose: Purpose, _ now: Duration) {
        guard case .change = purpose else { return }
        shown = nil
        isFirst = true
        retryAt = now + Self.firstRetry
    }

    private mutating func answered(
        _ answer: SessionAnswer,
        _ purpose: Purpose,
        _ home: inout Home,
        _ calls: inout Calls
    ) {
        lastEpoch = answer.session.epoch
        isStrict = answer.isStrict
        if !answer.owed.isEmpty {
            let due = home.update { record in
                record.reconcile(owed: answer.owed)
                return record.receipts(held: held)
            }
            // The cleanup was done, but the broker has not received the receipt.
            guard due.isEmpty else { return sendReceipts(due, then: purpose, &calls) }
        }
        switch purpose {
        case .token(let session): if answer.session.epoch == session.epoch { enter(session, &home) }
        case .change:
            let stale = enter(answer.session, owed: answer.owed, home: &home)
            self.stale = stale
            staleMarks = Dictionary(answer.owed.map { ($0.epoch, $0.mark) }) { $1 }
            let isNews = told != answer.session
            told = answer.session
            guard isNews || isFirst || !stale.isEmpty else { return }
            isFirst = false
            if stale.isEmpty { show(answer.session, &home) } else { clean(stale, &home, &calls) }
        }
    }

    private mutating func sendReceipts(
        _ receipts: [SessionRecord.Receipt],
        then purpose: Purpose?,
        _ calls: inout Calls
    ) {
        if let receipt = receipts.first {
            let (epoch, mark) = (receipt.epoch, receipt.mark ?? 0)
            let number = calls.send(.report(.finished, session: epoch, mark: mark, detail: receipt.detail))
            reportedAfter = heard
            keeper = .reports(number, receipts, purpose)
        } else if let purpose {
            ask(purpose, &calls)
        } else {
            followed()
        }
    }

    private mutating func enter(
        _ session: DeviceSession,
        owed: [OwedSession]? = nil,
        home: inout Home
    ) -> [SessionRecord.Session] {
        let stale = home.update { record in
            if let owed { record.reconcile(owed: owed) }
            return record.enter(session, held: held)
        }
        let current = session.account.map { SessionRecord.Session(account: $0, epoch: session.epoch) }
        if let current, !held.contains(current) { held.append(current) }
        return stale
    }

    /// Enters a session that came with a token. The record must have it before the app stores anything.
    private mutating func enter(_ session: DeviceSession, _ home: inout Home) {
        // A broker that was killed may have restored this session as the current one. This process still deletes its
        // data.
        guard !stale.contains(where: { $0.epoch == session.epoch }) else { return }
        let stale = enter(session, home: &home)
        guard stale.isEmpty || isStrict == false else { return }
        home.data[0].insert(session.epoch)
    }

    // MARK: The follower

    private mutating func show(_ session: DeviceSession, _ home: inout Home) {
        (home.journal, journal) = (nil, nil)
        shown = session.account.map { _ in session.epoch }
        backoff.reset()
    }

    private mutating func clean(_ stale: [SessionRecord.Session], _ home: inout Home, _ calls: inout Calls) {
        shown = nil
        let plan = CleanupPlan(
            steps: Home.stores,
            sessions: stale.map { CleanupJournal.Session(account: $0.account.identifier, epoch: $0.epoch) },
            journal: home.record.isShared(stale)
                ? nil : journal ?? (stale.contains(where: held.contains) ? nil : home.journal),
            attempts: 1
        )
        follower = .cleans(plan, stale)
        for session in stale { _ = calls.send(.report(.begun, session: session.epoch, detail: nil)) }
        guard mutant == .reportsBeforeDeletion else { return }
        for session in stale { _ = calls.send(.report(.finished, session: session.epoch, detail: nil)) }
    }

    /// The cleanup is over. The process asks for the present state and shows it.
    private mutating func followed() {
        follower = .waits
        isFirst = true
        mustAsk = true
    }

    private mutating func backOff(_ now: Duration) {
        follower = .waits
        isFirst = true
        retryAt = now + backoff.next()
    }

    /// Whether the process can take a step on its own.
    func canAct(at now: Duration) -> Bool {
        if case .cleans = follower { return true }
        guard case .free = keeper else { return false }
        if !arrived.isEmpty { return true }
        switch follower {
        case .isClean: return true
        case .waits: return mustAsk || retryAt.map { $0 <= now } ?? false
        case .cleans, .reports: return false
        }
    }

    /// Takes a step: one change on the disk, or one call.
    mutating func act(_ home: inout Home, _ calls: inout Calls, at now: Duration) {
        if case .free = keeper {
            if !arrived.isEmpty {
                let (session, isDoubtful) = arrived.removeFirst()
                if isDoubtful { return ask(.token(session), &calls) }
                if session.epoch >= lastEpoch { enter(session, &home) }
                return
            }
            if case .isClean(let stale) = follower {
                let receipts = home.update { [staleMarks] in $0.cleaned(stale, marks: staleMarks) }
                held.removeAll(where: stale.contains)
                self.stale.removeAll(where: stale.contains)
                unconfirmed = stale
                (home.journal, journal) = (nil, nil)
                follower = .reports
                return sendReceipts(receipts, then: nil, &calls)
            }
            if case .waits = follower {
                mustAsk = false
                retryAt = nil
                defer { fresh = nil }
                // The response to the last receipt already contained the state.
                if let fresh, fresh.owed.isEmpty { return answered(fresh, .change, &home, &calls) }
                return ask(.change, &calls)
            }
        }
        guard case .cleans(var plan, let stale) = follower else { return }
        switch plan.next {
        case .run(let name, _):
            if failures > 0 {
                failures -= 1
                plan.failed("the disk is busy")
            } else {
                let store = Home.stores.firstIndex(of: name) ?? 0
                home.remove(stale.map(\.epoch), from: store, isSynced: mutant != .deletesWithoutSync)
                plan.succeeded(nil)
                if !home.record.isShared(stale) { (home.journal, journal) = (plan.journal, plan.journal) }
            }
            follower = .cleans(plan, stale)
        case .reportDone: follower = .isClean(stale)
        case .fail:
            for session in stale { _ = calls.send(.report(.failed, session: session.epoch, detail: "a step failed")) }
            backOff(now)
        }
    }
}
