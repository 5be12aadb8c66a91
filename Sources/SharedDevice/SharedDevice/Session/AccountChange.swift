/// A change of the device's account: a different account than the app was last told of, or the same account in a new
/// session.
///
/// Respond in this order: stop work in progress, delete the data of ``previousAccounts`` on disk and on the screen,
/// call ``SharedDeviceApplication/cleanupDone(_:detail:)``, and only then show or load anything for ``current``. Until
/// `cleanupDone` the change is reported again at each start.
public struct AccountChange: Sendable {
    let stale: [SessionRecord.Session]
    /// The account that is signed in; `nil` if there is none.
    public let current: Account?
    /// The device's change counter at ``current``: a later change has a larger one.
    public let epoch: UInt64
    /// Whether this process may have stored some of the data. A cleanup by another process of the app does not count
    /// then.
    var isHeld = false
    /// Whether another process of the app may have stored some of the data, possibly while this process cleans up.
    var isShared = false
    /// The broker's marks at the time of this change, by session epoch.
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
        let sessions = stale.filter { $0.account == account }
        return sessions.isEmpty
            ? nil
            : AccountChange(
                stale: sessions,
                current: current,
                epoch: epoch,
                isHeld: isHeld,
                isShared: isShared,
                marks: marks
            )
    }
}

@_spi(Extensions) public struct AccountReport: Sendable {
    @_spi(Extensions) public let change: AccountChange
    @_spi(Extensions) public let previous: Account?
}

/// The changes of the device's account. The sequence asks the broker at the start, on each of its broadcasts, and when
/// the broker returns after an outage. It returns the differences from what the app was last told.
///
/// The first element comes at once, and so does the first one after a failure: the current state with all pending
/// cleanups. A change without a call of ``SharedDeviceApplication/cleanupDone(_:detail:)`` is returned again by the
/// next request, and at once by a new sequence. Use the sequence in one loop at a time.
///
/// While the broker is unavailable there are no elements; ``SharedDeviceApplication/accountChanges(onFailure:)``
/// reports the reason, and the app keeps its screen hidden.
public struct AccountChanges: AsyncSequence, Sendable {
    private let keeper: SessionKeeper
    private let broker: BrokerClient
    private let onFailure: @Sendable (SharedDeviceError) -> Void

    init(keeper: SessionKeeper, broker: BrokerClient, onFailure: @escaping @Sendable (SharedDeviceError) -> Void) {
        self.keeper = keeper
        self.broker = broker
        self.onFailure = onFailure
    }

    /// Creates an iterator. It starts to listen with its first `next()`.
    public func makeAsyncIterator() -> Iterator { Iterator(keeper: keeper, broker: broker, onFailure: onFailure) }

    public struct Iterator: AsyncIteratorProtocol {
        private let keeper: SessionKeeper
        private let broker: BrokerClient
        private let onFailure: @Sendable (SharedDeviceError) -> Void
        // Pending triggers are coalesced into one request.
        private let stream: AsyncStream<Void>
        private let continuation: AsyncStream<Void>.Continuation
        private var subscription: ChangeSubscription?
        private var isFirst = true
        private var retry: Task<Void, Never>?

        init(keeper: SessionKeeper, broker: BrokerClient, onFailure: @escaping @Sendable (SharedDeviceError) -> Void) {
            self.keeper = keeper
            self.broker = broker
            self.onFailure = onFailure
            (stream, continuation) = AsyncStream.makeStream(bufferingPolicy: .bufferingNewest(1))
            continuation.yield()
        }

        /// Returns the next change, or `nil` when the task is cancelled.
        public mutating func next(isolation: isolated (any Actor)?) async -> AccountChange? {
            while let answer = await nextAnswer(isolation) {
                switch answer {
                case .success(let change): return change
                case .failure(let error): onFailure(error)
                }
            }
            return nil
        }

        mutating func nextAnswer(
            _ isolation: isolated (any Actor)?
        ) async -> Result<AccountChange, SharedDeviceError>? {
            while await wait(isolation) {
                do throws(SharedDeviceError) {
                    if subscription == nil {
                        let continuation = continuation
                        subscription = try await broker.onChange { continuation.yield() }
                    }
                    guard let change = try await keeper.change(isFirst: isFirst) else { continue }
                    isFirst = false
                    return .success(change)
                } catch {
                    // The app has hidden its screen, and needs an element to show it again.
                    isFirst = true
                    askAgainLater()
                    return .failure(error)
                }
            }
            return nil
        }

        /// Asks again at once. The next element is the current state, even without a change.
        mutating func askAgain() {
            isFirst = true
            continuation.yield()
        }

        private func wait(_ isolation: isolated (any Actor)?) async -> Bool {
            var triggers = stream.makeAsyncIterator()
            return await triggers.next(isolation: isolation) != nil
        }

        /// Asks again after a second. The broker's return also triggers a request; this covers all other failures.
        private mutating func askAgainLater() {
            retry?.cancel()
            let continuation = continuation
            retry = Task {
                // A cancelled sleep was replaced by a later retry.
                guard (try? await Task.sleep(for: .seconds(1))) != nil else { return }
                continuation.yield()
            }
        }
    }
}
