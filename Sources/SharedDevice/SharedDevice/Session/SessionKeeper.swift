import DBusTransport

/// Asks the broker and keeps the record, one question at a time: overlapping ones would report a change twice or lose one
/// (edge case E10).
actor SessionKeeper {
    private let application: String
    private let broker: BrokerClient
    private var record: SharedRecord
    /// Whether a question is under way, and who waits for its end.
    private var isBusy = false
    private var waiting: [CheckedContinuation<Void, Never>] = []
    /// The session that the app was last told of as a change.
    private var told: DeviceSession?
    /// The epoch of the broker's last answer.
    private var lastEpoch: UInt64 = 0
    /// Whether the device's policy is strict, by the broker's last answer; `nil` before the first.
    private var isStrict: Bool?
    /// Whether the broker keeps the account back until this app has cleaned up.
    private var isWithheld = false

    init(application: String, broker: BrokerClient, store: SessionStore) {
        self.application = application
        self.broker = broker
        record = SharedRecord(store: store)
    }

    /// The current state and the account that was reported before. From then on the current account counts as reported. An account whose
    /// cleanup is not reported yet is reported as the previous one again.
    func report() async throws(SharedDeviceError) -> AccountReport {
        try await inTurn { keeper throws(SharedDeviceError) in
            let answer = try await keeper.ask()
            return try await keeper.update { record in
                record.reconcile(owed: answer.owed)
                let stale = record.enter(answer.session)
                let previous = record.report(answer.session)
                let change = AccountChange(stale: stale, current: answer.session.account, epoch: answer.session.epoch)
                return AccountReport(change: change, previous: change.previous ?? previous)
            }
        }
    }

    /// Who is signed in. This reports nothing: it does not change what the next report says.
    func current() async throws(SharedDeviceError) -> Account? {
        try await inTurn { keeper throws(SharedDeviceError) in
            let answer = try await keeper.ask()
            try await keeper.update { record in
                record.reconcile(owed: answer.owed)
                _ = record.enter(answer.session)
            }
            return answer.session.account
        }
    }

    /// What changed since this function last told the app; `nil` means nothing.
    ///
    /// - Parameter isFirst: whether the app wants the current state even if nothing changed.
    func change(isFirst: Bool) async throws(SharedDeviceError) -> AccountChange? {
        try await inTurn { keeper throws(SharedDeviceError) in
            let answer = try await keeper.ask()
            // The record is on the disk before the app hears of the account, and so before the app can store anything for it.
            let stale = try await keeper.update { record in
                record.reconcile(owed: answer.owed)
                return record.enter(answer.session)
            }
            guard await keeper.tell(answer.session) || isFirst || !stale.isEmpty else { return nil }
            return AccountChange(stale: stale, current: answer.session.account, epoch: answer.session.epoch)
        }
    }

    /// Records a session of which the app is about to hear together with a token.
    ///
    /// - Parameter isDoubtful: whether the broker has announced a change meanwhile. It is then asked whether the session still lasts.
    /// - Throws: ``SharedDeviceError/Code/currentAccountMismatch`` if the session is over by what the broker has said since
    ///   (edge case E14), ``SharedDeviceError/Code/cleanupRequired`` if the policy is strict and there may be data of another
    ///   session; the token is then not to be used.
    func enter(_ session: DeviceSession, attempted: String, isDoubtful: Bool) async throws(SharedDeviceError) {
        try await inTurn { keeper throws(SharedDeviceError) in
            let isOver =
                if isDoubtful {
                    try await keeper.ask().session.epoch != session.epoch
                } else {
                    await session.epoch < keeper.lastEpoch
                }
            guard !isOver else {
                throw SharedDeviceError(
                    .currentAccountMismatch,
                    attempted: attempted,
                    message: "the account was signed out meanwhile"
                )
            }
            let stale = try await keeper.update { $0.enter(session) }
            // The debt arose while the request was under way. If an administrator has waived it, the ledger does not have it.
            let isStrict = await keeper.isStrict == true
            guard stale.isEmpty || !isStrict else { throw Self.cleanupRequired(attempted) }
        }
    }

    /// The session that the app takes for the account's current one.
    func session(of account: Account) async throws(SharedDeviceError) -> UInt64? {
        try await inTurn { keeper throws(SharedDeviceError) in try await keeper.update { $0.session(of: account) } }
    }

    /// Checks, before the app gets a token, that it holds no data of another session if the policy is strict. The broker's ledger says the
    /// same, except for debts that an administrator waived.
    ///
    /// - Parameter account: the account of the token; `nil` means somebody who is about to sign in.
    /// - Returns: the session that the app takes for the account's current one.
    @discardableResult
    func requireClean(for account: Account?, attempted: String) async throws(SharedDeviceError) -> UInt64? {
        try await inTurn { keeper throws(SharedDeviceError) in
            if await keeper.isStrict == nil { _ = try await keeper.ask() }
            let (hasOthers, session) = try await keeper.update { record in
                let session = account.flatMap(record.session)
                // An earlier session of the same account is another session, too.
                return (record.mayHoldData.contains { $0.account != account || $0.epoch != session }, session)
            }
            let isStrict = await keeper.isStrict == true
            guard !hasOthers || !isStrict else { throw Self.cleanupRequired(attempted) }
            return session
        }
    }

    private static func cleanupRequired(_ attempted: String) -> SharedDeviceError {
        SharedDeviceError(
            .cleanupRequired,
            attempted: attempted,
            message: "this app has not reported the cleanup after an earlier session; follow accountChanges"
        )
    }

    /// Reports that the app has deleted the data of a change's previous accounts. On return the report is on the app's disk, and the broker
    /// has it or gets it as soon as it answers again.
    ///
    /// - Parameter isImplied: whether the app has only gone on as if it had deleted the data. A strict policy demands its own word: then
    ///   nothing is reported.
    /// - Returns: whether the broker kept the account back until now.
    func cleaned(
        _ change: AccountChange,
        detail: String?,
        isImplied: Bool = false
    ) async throws(SharedDeviceError) -> Bool {
        try await inTurn { keeper throws(SharedDeviceError) in
            let isStrict = await keeper.isStrict
            guard !isImplied || isStrict == false else { return false }
            try await keeper.update { $0.cleaned(change.stale, detail: detail) }
            do throws(SharedDeviceError) {
                try await keeper.sendReceipts()
            } catch  where error.code == .brokerUnavailable {
                // The broker asks for them again.
            }
            return await keeper.isWithheld
        }
    }

    /// Reports that a cleanup has begun or failed.
    func tell(
        _ progress: CleanupReport.Progress,
        of change: AccountChange,
        detail: String?
    ) async throws(SharedDeviceError) {
        for session in change.stale { try await send(progress, session.epoch, detail) }
    }

    private func ask() async throws(SharedDeviceError) -> SessionAnswer {
        let attempted = "get the current account"
        let fields = try await broker.call(
            .getCurrentAccount,
            ["application": .string(application)],
            attempted: attempted,
            isCancellable: false
        )
        let answer: SessionAnswer
        do throws(BrokerProtocol.Malformed) {
            answer = try SessionAnswer(fields)
        } catch {
            throw SharedDeviceError(.brokerFailed, attempted: attempted, message: "its answer lacks “\(error.field)”")
        }
        lastEpoch = answer.session.epoch
        isWithheld = answer.isWithheld
        isStrict = answer.isStrict
        if answer.owed.isEmpty { return answer }
        let due = try update { record in
            record.reconcile(owed: answer.owed)
            return record.receiptsDue
        }
        guard !due.isEmpty else { return answer }
        // The cleanup was done, but the broker was away, or the app ended before it could report it.
        try await sendReceipts()
        return try await ask()
    }

    private func sendReceipts() async throws(SharedDeviceError) {
        let due = try update { $0.receiptsDue }
        for receipt in due {
            try await send(.finished, receipt.epoch, receipt.detail)
            try update { $0.delivered([receipt]) }
        }
    }

    private func send(
        _ progress: CleanupReport.Progress,
        _ epoch: UInt64,
        _ detail: String?
    ) async throws(SharedDeviceError) {
        var request: BrokerProtocol.Fields = [
            "application": .string(application), "session": .uint64(epoch), "progress": .string(progress.rawValue),
        ]
        request["detail"] = detail.map { .string(Self.sendable($0)) }
        _ = try await broker.call(
            .reportCleanup,
            request,
            attempted: "report a cleanup to the broker",
            isCancellable: false
        )
    }

    /// The text without what the bus refuses: a receipt that cannot be sent would block every question.
    private static func sendable(_ detail: String) -> String {
        String(String.UnicodeScalarView(detail.unicodeScalars.lazy.filter { $0 != "\0" }.prefix(2000)))
    }

    /// Whether the app has not been told of this session.
    private func tell(_ session: DeviceSession) -> Bool {
        defer { told = session }
        return told != session
    }

    @discardableResult
    private func update<Value>(_ body: (inout SessionRecord) -> Value) throws(SharedDeviceError) -> Value {
        try record.update(body)
    }

    /// Runs one request at a time, to its end. An actor would let the next one in at each await. A request goes on even if the caller's
    /// task is cancelled: a receipt that is on the disk has to reach the broker.
    private func inTurn<Value: Sendable>(
        _ body: (SessionKeeper) async throws(SharedDeviceError) -> Value
    ) async throws(SharedDeviceError) -> Value {
        if isBusy { await withCheckedContinuation { waiting.append($0) } }
        isBusy = true
        // The turn passes directly to the first in the queue, so that nobody who comes meanwhile overtakes.
        defer { if waiting.isEmpty { isBusy = false } else { waiting.removeFirst().resume() } }
        return try await body(self)
    }
}
