import DBusTransport

/// Asks the broker and keeps the record, one question at a time: overlapping ones would report a change twice or lose one
/// (edge case E10).
actor SessionKeeper {
    private let broker: BrokerClient
    private let store: SessionStore
    private var record: SessionRecord?
    private var last: Task<Void, Never>?
    /// The session that the app was last told of as a change.
    private var told: DeviceSession?
    /// The epoch of the broker's last answer.
    private var lastEpoch: UInt64 = 0

    init(broker: BrokerClient, store: SessionStore) {
        self.broker = broker
        self.store = store
    }

    /// Where things stand, and the account reported before; afterwards the current one is the one reported.
    func report() async throws(SharedDeviceError) -> AccountReport {
        try await inTurn { keeper throws(SharedDeviceError) in
            let session = try await keeper.ask()
            var record = try await keeper.loaded()
            let stale = record.enter(session)
            let previous = record.report(session)
            try await keeper.keep(record)
            let change = AccountChange(stale: stale, current: session.account, epoch: session.epoch)
            return AccountReport(change: change, previous: previous)
        }
    }

    /// Who is signed in, without a report: what the next one says is the same as without this question.
    func current() async throws(SharedDeviceError) -> Account? {
        try await inTurn { keeper throws(SharedDeviceError) in
            let session = try await keeper.ask()
            var record = try await keeper.loaded()
            _ = record.enter(session)
            try await keeper.keep(record)
            return session.account
        }
    }

    /// What changed since the app was last told by this function; `nil` for nothing.
    ///
    /// - Parameter isFirst: whether the app is to be told where things stand in any case.
    func change(isFirst: Bool) async throws(SharedDeviceError) -> AccountChange? {
        try await inTurn { keeper throws(SharedDeviceError) in
            let session = try await keeper.ask()
            var record = try await keeper.loaded()
            let stale = record.enter(session)
            // On disk before the app hears of it, and so before it can store anything for the new account.
            try await keeper.keep(record)
            guard await keeper.tell(session) || isFirst || !stale.isEmpty else { return nil }
            return AccountChange(stale: stale, current: session.account, epoch: session.epoch)
        }
    }

    /// Takes note of a session that the app hears of together with a token, before it does.
    ///
    /// - Throws: ``SharedDeviceError/Code/currentAccountMismatch`` where the session is over by what the broker has said since
    ///   (edge case E14); the token is then not to be used.
    func enter(_ session: DeviceSession, attempted: String) async throws(SharedDeviceError) {
        try await inTurn { keeper throws(SharedDeviceError) in
            guard await session.epoch >= keeper.lastEpoch else {
                throw SharedDeviceError(
                    .currentAccountMismatch,
                    attempted: attempted,
                    message: "the account was signed out meanwhile"
                )
            }
            var record = try await keeper.loaded()
            _ = record.enter(session)
            try await keeper.keep(record)
        }
    }

    /// The app reports that the data of a change's previous accounts is gone.
    func cleaned(_ change: AccountChange) async throws(SharedDeviceError) {
        try await inTurn { keeper throws(SharedDeviceError) in
            var record = try await keeper.loaded()
            record.cleaned(change.stale)
            try await keeper.keep(record)
        }
    }

    private func ask() async throws(SharedDeviceError) -> DeviceSession {
        let attempted = "get the current account"
        let fields = try await broker.call(.getCurrentAccount, attempted: attempted)
        do throws(BrokerProtocol.Malformed) {
            let session = try DeviceSession(fields)
            lastEpoch = session.epoch
            return session
        } catch {
            throw SharedDeviceError(.brokerFailed, attempted: attempted, message: "its answer lacks “\(error.field)”")
        }
    }

    /// Whether the app has not been told of this session.
    private func tell(_ session: DeviceSession) -> Bool {
        defer { told = session }
        return told != session
    }

    private func loaded() throws(SharedDeviceError) -> SessionRecord {
        if let record { return record }
        let loaded = try store.load()
        record = loaded
        return loaded
    }

    private func keep(_ new: SessionRecord) throws(SharedDeviceError) {
        guard new != record else { return }
        try store.save(new)
        record = new
    }

    /// An actor lets others in at each await; this queue does not.
    private func inTurn<Value: Sendable>(
        _ body: @escaping @Sendable (SessionKeeper) async throws(SharedDeviceError) -> Value
    ) async throws(SharedDeviceError) -> Value {
        let previous = last
        let turn = Task { () -> Result<Value, SharedDeviceError> in
            await previous?.value
            do throws(SharedDeviceError) {
                return .success(try await body(self))
            } catch {
                return .failure(error)
            }
        }
        last = Task { _ = await turn.value }
        return try await turn.value.get()
    }
}
