import DBus

/// Asks the broker for the current account, and keeps the app's record of the sessions whose data it may hold. Runs one
/// request at a time: overlapping requests would report a change twice or lose it (edge case E10).
actor SessionKeeper {
    private let application: String
    private let broker: BrokerClient
    private var record: SharedRecord
    /// Whether a request is in progress; `waiting` has the callers in line for the next one.
    private var isBusy = false
    private var waiting: [CheckedContinuation<Void, Never>] = []
    /// The session that the app was last told of as a change.
    private var told: DeviceSession?
    private var lastEpoch: UInt64 = 0
    /// Whether the device's policy is strict, according to the broker's last response; `nil` before the first response.
    private var isStrict: Bool?
    /// Whether the broker withholds the account until this app has cleaned up.
    private var isWithheld = false
    /// The sessions that this process was told of and has not cleaned up.
    private var held: [SessionRecord.Session] = []
    /// The ended sessions that the app was last told of and has not cleaned up.
    private var stale: [SessionRecord.Session] = []
    /// The sessions in the record before the last request.
    private var known: [SessionRecord.Session] = []
    /// The state in the broker's response to the last receipt, and the value of ``BrokerClient/heardBroadcasts`` when
    /// the receipt was sent.
    private var fresh: (answer: SessionAnswer, heardBroadcasts: UInt64)?

    init(application: String, broker: BrokerClient, store: SessionStore) {
        self.application = application
        self.broker = broker
        record = SharedRecord(store: store)
    }

    /// Returns the current state and the previously reported account, and counts the current one as reported. An
    /// account whose cleanup is not reported yet is returned as the previous one again.
    func report() async throws(SharedDeviceError) -> AccountReport {
        await beginTurn()
        defer { endTurn() }
        let answer = try await ask()
        let (change, previous) = try await enter(answer) { record, change in
            (change, record.report(answer.session))
        }
        stale = change.stale
        return AccountReport(change: change, previous: change.previous ?? previous)
    }

    /// Returns the current account without reporting it: the next report is unaffected.
    func current() async throws(SharedDeviceError) -> Account? {
        await beginTurn()
        defer { endTurn() }
        let answer = try await ask()
        _ = try await enter(answer) { $1 }
        return answer.session.account
    }

    /// Returns the change since this function last told the app; at first (`isFirst`) also the state without a change.
    func change(isFirst: Bool) async throws(SharedDeviceError) -> AccountChange? {
        await beginTurn()
        defer { endTurn() }
        let answer = if let answer = takeFreshAnswer() { answer } else { try await ask() }
        let change = try await enter(answer) { $1 }
        stale = change.stale
        guard tell(answer.session) || isFirst || !change.stale.isEmpty else { return nil }
        return change
    }

    /// Records a session before the app gets it together with a token.
    ///
    /// - Parameter isDoubtful: whether the broker has announced a change during the request. The broker is then asked
    ///   whether the session still lasts.
    /// - Throws: ``SharedDeviceError/Code/currentAccountMismatch`` if the session has ended according to the broker's
    ///   later responses (edge case E14), or if this app still has to clean up after it: a broker that was killed may
    ///   return it as the current one again. ``SharedDeviceError/Code/cleanupRequired`` if the policy is strict and
    ///   there may be data of another session; the token must then not be used.
    func enter(_ session: DeviceSession, attempted: String, isDoubtful: Bool) async throws(SharedDeviceError) {
        await beginTurn()
        defer { endTurn() }
        let isOver =
            isDoubtful ? try await ask().session.epoch != session.epoch : session.epoch < lastEpoch
        guard !isOver, !stale.contains(where: { $0.epoch == session.epoch }) else {
            let message = "the account has been signed out; get the current account"
            throw SharedDeviceError(.currentAccountMismatch, attempted: attempted, message: message)
        }
        let due = try await update { [held] in $0.enter(session, held: held) }
        hold(session)
        // This cleanup became due during the request. If an administrator has waived it, it is not in the ledger,
        // and the broker did not refuse the token.
        guard due.isEmpty || isStrict != true else { throw Self.cleanupRequired(attempted) }
    }

    func session(of account: Account) async throws(SharedDeviceError) -> UInt64? {
        await beginTurn()
        defer { endTurn() }
        return try await update { $0.session(of: account) }
    }

    /// If the policy is strict, checks before a token request that the app holds no data of another session. The broker
    /// checks the same by its ledger, which lacks waived cleanups.
    ///
    /// - Parameter account: the account of the token; `nil` for a sign-in that has not started.
    /// - Returns: the session that the app takes for the account's current one.
    @discardableResult
    func requireClean(for account: Account?, attempted: String) async throws(SharedDeviceError) -> UInt64? {
        await beginTurn()
        defer { endTurn() }
        if isStrict == nil { _ = try await ask() }
        let (hasOthers, session) = try await update { record in
            let session = account.flatMap(record.session)
            // An earlier session of the same account is another session, too.
            return (record.mayHoldData.contains { $0.account != account || $0.epoch != session }, session)
        }
        guard !hasOthers || isStrict != true else { throw Self.cleanupRequired(attempted) }
        return session
    }

    private static func cleanupRequired(_ attempted: String) -> SharedDeviceError {
        SharedDeviceError(
            .cleanupRequired,
            attempted: attempted,
            message: "this app has not reported the cleanup after an earlier session; follow accountChanges"
        )
    }

    /// Reports that the app has deleted the data of a change's previous accounts. On return the report is on disk, and
    /// the broker has it or gets it as soon as it responds again.
    ///
    /// - Parameter isImplied: whether the app has only continued as if it had deleted the data. Under a strict policy
    ///   nothing is reported then.
    /// - Returns: whether to ask the broker again: it withheld the account until now, or the cleanup does not count.
    func cleaned(
        _ change: AccountChange,
        detail: String?,
        took: Duration? = nil,
        isImplied: Bool = false
    ) async throws(SharedDeviceError) -> Bool {
        await beginTurn()
        defer { endTurn() }
        guard !isImplied || isStrict == false else { return false }
        // Update the record before sending the receipt: once a cleanup is reported, this app's files must not
        // contain the user's name.
        let receipts = try await update { $0.cleaned(change.stale, detail: detail, marks: change.marks) }
        held.removeAll(where: change.stale.contains)
        stale.removeAll(where: change.stale.contains)
        do throws(SharedDeviceError) {
            let refused = try await send(receipts, took: took)
            let again = change.stale.filter { refused.contains($0.epoch) }
            guard !again.isEmpty else { return isWithheld }
            try await update { $0.reopen(again) }
            stale += again
            return true
        } catch  where error.code == .brokerUnavailable {
            // The broker will ask for the receipts again.
            return isWithheld
        }
    }

    /// Reports that a cleanup has begun. The report has no response, so that the deletion need not wait.
    func tellBegun(_ change: AccountChange) async throws(SharedDeviceError) {
        for session in change.stale {
            try await broker.tell(.reportCleanup, report(.begun, session.epoch), attempted: Self.reporting)
        }
    }

    func tellFailed(_ change: AccountChange, reason: String) async throws(SharedDeviceError) {
        for session in change.stale {
            let request = report(.failed, session.epoch, detail: reason)
            _ = try await broker.call(.reportCleanup, request, attempted: Self.reporting, isCancellable: false)
        }
    }

    private static let reporting = "report a cleanup to the broker"

    private func report(
        _ progress: CleanupReport.Progress,
        _ epoch: UInt64,
        mark: UInt64? = nil,
        took: Duration? = nil,
        detail: String? = nil
    ) -> BrokerProtocol.Fields {
        var request: BrokerProtocol.Fields = [
            "application": .string(application), "session": .uint64(epoch), "progress": .string(progress.rawValue),
        ]
        request["mark"] = mark.map { .uint64($0) }
        request["took"] = took.map { .double($0 / .seconds(1)) }
        request["detail"] = detail.map { .string(Self.sendable($0)) }
        return request
    }

    // MARK: The broker's responses

    private func ask() async throws(SharedDeviceError) -> SessionAnswer {
        let attempted = "get the current account"
        // The state from a receipt's response is older than the response to this request.
        fresh = nil
        known = try record.sessions()
        let fields = try await broker.call(
            .getCurrentAccount,
            ["application": .string(application)],
            attempted: attempted,
            isCancellable: false
        )
        let answer = try note(fields, attempted: attempted)
        if answer.owed.isEmpty { return answer }
        let due = try await update { [held] record in
            record.reconcile(owed: answer.owed)
            return record.receipts(held: held)
        }
        guard !due.isEmpty else { return answer }
        // The cleanup was done, but the broker was unavailable, or the app ended before it could report the cleanup.
        _ = try await send(due)
        return try await ask()
    }

    private func note(_ fields: BrokerProtocol.Fields, attempted: String) throws(SharedDeviceError) -> SessionAnswer {
        let answer = try BrokerProtocol.decoded(attempted) { () throws(BrokerProtocol.Malformed) in
            try SessionAnswer(fields)
        }
        lastEpoch = answer.session.epoch
        isWithheld = answer.isWithheld
        isStrict = answer.isStrict
        return answer
    }

    /// Sends receipts for finished cleanups. Returns the sessions whose cleanup does not count, because another process
    /// of the app ended during it without a report.
    private func send(
        _ receipts: [SessionRecord.Receipt],
        took: Duration? = nil
    ) async throws(SharedDeviceError) -> Set<UInt64> {
        var refused: Set<UInt64> = []
        for receipt in receipts {
            let heard = broker.heardBroadcasts
            let request = report(.finished, receipt.epoch, mark: receipt.mark, took: took, detail: receipt.detail)
            let fields = try await broker.call(
                .reportCleanup,
                request,
                attempted: Self.reporting,
                isCancellable: false
            )
            // While no account is signed in, the response to a receipt also contains the current state.
            fresh = fields["epoch"] == nil ? nil : (try note(fields, attempted: Self.reporting), heard)
            if fields["again"]?.booleanValue == true { refused.insert(receipt.epoch) }
        }
        return refused
    }

    /// Returns the state in the response to the last receipt, or `nil` if the broker may have a newer state or the app
    /// owes a cleanup.
    private func takeFreshAnswer() -> SessionAnswer? {
        defer { fresh = nil }
        guard let fresh, fresh.heardBroadcasts == broker.heardBroadcasts, fresh.answer.owed.isEmpty else { return nil }
        return fresh.answer
    }

    /// Records the session in a response before the app learns of the account, and so before the app can store data for
    /// it. Passes the change for the app to `body`.
    private func enter<Value: Sendable>(
        _ answer: SessionAnswer,
        _ body: @escaping @Sendable (inout SessionRecord, AccountChange) -> Value
    ) async throws(SharedDeviceError) -> Value {
        let (session, owed) = (answer.session, answer.owed)
        let value = try await update { [held, known] record in
            record.reconcile(owed: owed)
            let stale = record.enter(session, held: held, known: known)
            let change = AccountChange(
                stale: stale,
                current: session.account,
                epoch: session.epoch,
                isHeld: stale.contains(where: held.contains),
                isShared: record.isShared(stale),
                marks: Dictionary(owed.lazy.filter { $0.mark > 0 }.map { ($0.epoch, $0.mark) }) { $1 }
            )
            return body(&record, change)
        }
        hold(session)
        return value
    }

    private func hold(_ session: DeviceSession) {
        let current = session.account.map { SessionRecord.Session(account: $0, epoch: session.epoch) }
        if let current, !held.contains(current) { held.append(current) }
    }

    /// Removes everything that the bus refuses: a receipt that cannot be sent would block every request.
    private static func sendable(_ detail: String) -> String {
        String(String.UnicodeScalarView(detail.unicodeScalars.lazy.filter { $0 != "\0" }.prefix(2000)))
    }

    /// Whether the app has not been told of this session yet. Marks it as told.
    private func tell(_ session: DeviceSession) -> Bool {
        defer { told = session }
        return told != session
    }

    private func update<Value: Sendable>(
        _ body: @escaping @Sendable (inout SessionRecord) -> Value
    ) async throws(SharedDeviceError) -> Value {
        // ``beginTurn()`` allows one request at a time, so no other task changes the copy.
        var record = record
        defer { self.record = record }
        return try await record.update(body)
    }

    /// Runs one request at a time, to its end; an actor alone would start the next one at each await. A request
    /// continues in a cancelled task: a receipt on disk has to reach the broker.
    private func beginTurn() async {
        if isBusy { await withCheckedContinuation { waiting.append($0) } }
        isBusy = true
    }

    /// Passes the turn directly to the first waiting caller, so that a new caller cannot overtake it.
    private func endTurn() { if waiting.isEmpty { isBusy = false } else { waiting.removeFirst().resume() } }
}

/// A change of the device's account: a different account than the app was last told of, or the same account in a new
/// session.
///
/// Respond in this order: stop work in progress, delete the data of ``previousAccounts`` on disk and on the screen,
/// call ``SharedDeviceApplication/cleanupDone(_:detail:)``, and only then show or load anything for ``current``. Until
/// `cleanupDone` the change is reported again at each start.
public struct AccountChange: Sendable {
    fileprivate(set) var stale: [SessionRecord.Session]
    /// The account that is signed in; `nil` if there is none.
    public let current: Account?
    /// The number of the change that led to ``current``. A later change has a larger number.
    public let epoch: UInt64
    /// Whether this process may have stored some of the data. A cleanup by another process of the app does not count
    /// then.
    var isHeld = false
    /// Whether another process of the app may have stored some of the data, possibly while this process cleans up.
    var isShared = false
    /// The broker's marks (``OwedSession/mark``) at the time of this change, by session epoch.
    var marks: [UInt64: UInt64] = [:]

    /// The accounts whose data the app has to delete: usually one, several if cleanups were missed, none at a first
    /// sign-in. ``current`` can be among them: another person may have used the device in between, and the new session
    /// starts clean.
    public var previousAccounts: [Account] {
        stale.reduce(into: []) { accounts, session in
            if !accounts.contains(session.account) { accounts.append(session.account) }
        }
    }

    /// The account that this app last worked for, whose data it has to delete; `nil` if there is nothing to clean up.
    /// It is ``current`` only if no other account is left, so that an app that reads only this property sees every
    /// other account first.
    public var previous: Account? { (stale.last { $0.account != current } ?? stale.last)?.account }
}

extension AccountChange {
    @_spi(Extensions) public func part(of account: Account) -> AccountChange? {
        var part = self
        part.stale.removeAll { $0.account != account }
        return part.stale.isEmpty ? nil : part
    }
}

@_spi(Extensions) public struct AccountReport: Sendable {
    @_spi(Extensions) public let change: AccountChange
    @_spi(Extensions) public let previous: Account?
}

/// The changes of the device's account, as differences from what the app was last told. The sequence asks the broker at
/// the start, on each of its broadcasts, and when the broker returns after an outage.
///
/// The first element comes at once, and so does the first one after a failure: the current state with all pending
/// cleanups. A change without a call of ``SharedDeviceApplication/cleanupDone(_:detail:)`` is returned again by the
/// next request, and at once by a new sequence. Use the sequence in one loop at a time.
///
/// While the broker is unavailable there are no elements; ``SharedDeviceApplication/accountChanges(onFailure:)``
/// reports the reason, and the app keeps its screen hidden.
public struct AccountChanges: AsyncSequence, Sendable {
    let keeper: SessionKeeper
    let broker: BrokerClient
    let onFailure: @Sendable (SharedDeviceError) -> Void

    /// Creates an iterator. It starts to listen with its first `next()`.
    public func makeAsyncIterator() -> Iterator { Iterator(changes: self) }

    /// Waits for one change after the other.
    public struct Iterator: AsyncIteratorProtocol {
        fileprivate let changes: AccountChanges
        private var triggers = ChangeTriggers()
        private var isFirst = true

        fileprivate init(changes: AccountChanges) { self.changes = changes }

        /// Returns the next change, or `nil` when the task is cancelled.
        public mutating func next(isolation: isolated (any Actor)?) async -> AccountChange? {
            while let answer = await nextAnswer(isolation) {
                switch answer {
                case .success(let change): return change
                case .failure(let error): changes.onFailure(error)
                }
            }
            return nil
        }

        mutating func nextAnswer(
            _ isolation: isolated (any Actor)?
        ) async -> Result<AccountChange, SharedDeviceError>? {
            while await triggers.wait(isolation) {
                do throws(SharedDeviceError) {
                    try await triggers.listen(to: changes.broker)
                    guard let change = try await changes.keeper.change(isFirst: isFirst) else { continue }
                    isFirst = false
                    return .success(change)
                } catch {
                    // The app has hidden its screen, and needs an element to show it again.
                    isFirst = true
                    triggers.askAgainLater()
                    return .failure(error)
                }
            }
            return nil
        }

        /// Asks again at once. The next element is the current state, even without a change.
        mutating func askAgain() {
            isFirst = true
            triggers.askAgain()
        }
    }
}

/// The times at which a sequence asks the broker: at the start, on each change, and after a failure. Pending triggers
/// are coalesced into one request.
struct ChangeTriggers {
    private let stream: AsyncStream<Void>
    private let continuation: AsyncStream<Void>.Continuation
    private var subscription: Observation?
    private var retry: Task<Void, Never>?

    init() {
        (stream, continuation) = AsyncStream.makeStream(bufferingPolicy: .bufferingNewest(1))
        continuation.yield()
    }

    /// Waits until it is time to ask. Returns `false` when the task is cancelled.
    func wait(_ isolation: isolated (any Actor)?) async -> Bool {
        var triggers = stream.makeAsyncIterator()
        return await triggers.next(isolation: isolation) != nil
    }

    /// Subscribes to the broker's changes, at the first call.
    mutating func listen(to broker: BrokerClient) async throws(SharedDeviceError) {
        guard subscription == nil else { return }
        let continuation = continuation
        subscription = try await broker.onChange { continuation.yield() }
    }

    func askAgain() { continuation.yield() }

    /// Asks again after a second. The broker's return also triggers a request; this covers all other failures.
    mutating func askAgainLater() {
        retry?.cancel()
        let continuation = continuation
        retry = Task {
            // A cancelled sleep was replaced by a later retry.
            guard (try? await Task.sleep(for: .seconds(1))) != nil else { return }
            continuation.yield()
        }
    }
}
