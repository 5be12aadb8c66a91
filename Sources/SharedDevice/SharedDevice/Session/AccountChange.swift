/// The device has another account than this app was told of before, or the same account in another session.
///
/// Do, in this order: stop work under way, delete the data of ``previousAccounts`` on disk and on the screen, call
/// ``SharedDeviceApplication/cleanupDone(_:detail:)``, and only then show or load anything for ``current``. Until `cleanupDone` the
/// change is reported again at each start.
public struct AccountChange: Sendable {
    let stale: [SessionRecord.Session]
    /// Who is signed in now; `nil` for nobody.
    public let current: Account?
    /// The device's change counter at ``current``: a later change has a larger one.
    public let epoch: UInt64
    /// Whether this process may have stored some of the data. What another process of the app has cleaned up does not count then.
    var isHeld = false
    /// Whether another process of the app may have stored some of it, also while this one cleans up.
    var isShared = false
    /// The broker's marks by then, of the sessions that have one.
    var marks: [UInt64: UInt64] = [:]

    /// The accounts whose data the app has to delete: usually one, several if cleanups were missed, none at a first sign-in. ``current``
    /// can be among them: somebody else may have used the device in between, and the new session starts clean.
    public var previousAccounts: [Account] {
        stale.reduce(into: []) { accounts, session in
            if !accounts.contains(session.account) { accounts.append(session.account) }
        }
    }

    /// The account that this app last worked for, whose data it has to delete; `nil` if there is nothing to clean up. It is ``current`` only
    /// if no other account is left, so that an app that reads nothing else hears of every other account first.
    public var previous: Account? { (stale.last { $0.account != current } ?? stale.last)?.account }
}

extension AccountChange {
    /// The part of this change that concerns the data of `account`; `nil` if none of that is to be deleted.
    package func part(of account: Account) -> AccountChange? {
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

/// The answer to an app that asks for the current account.
package struct AccountReport: Sendable {
    /// Who is signed in, and whose data the app has to delete.
    package let change: AccountChange
    /// The account that was reported before.
    package let previous: Account?
}

/// The changes of the device's account. The sequence asks the broker at the start, on each of the broker's broadcasts and when the broker
/// comes back, and hands out what differs from the app's last answer.
///
/// The first element comes at once, and so does the first one after a failure: it is the current state, with what is left to clean up. A
/// change that the app does not answer with ``SharedDeviceApplication/cleanupDone(_:detail:)`` is handed out again at the next question, and
/// at once by a new sequence. Use it in one loop at a time. While the broker is away there are no elements;
/// ``SharedDeviceApplication/accountChanges(onFailure:)`` tells why, and the app keeps its screen hidden.
public struct AccountChanges: AsyncSequence, Sendable {
    private let keeper: SessionKeeper
    private let broker: BrokerClient
    private let onFailure: @Sendable (SharedDeviceError) -> Void

    init(keeper: SessionKeeper, broker: BrokerClient, onFailure: @escaping @Sendable (SharedDeviceError) -> Void) {
        self.keeper = keeper
        self.broker = broker
        self.onFailure = onFailure
    }

    /// An iterator. It begins to listen with its first `next()`.
    public func makeAsyncIterator() -> Iterator { Iterator(keeper: keeper, broker: broker, onFailure: onFailure) }

    /// Waits for one change after the other.
    public struct Iterator: AsyncIteratorProtocol {
        private let keeper: SessionKeeper
        private let broker: BrokerClient
        private let onFailure: @Sendable (SharedDeviceError) -> Void
        // One question answers any number of reasons to ask.
        private let stream: AsyncStream<Void>
        private let continuation: AsyncStream<Void>.Continuation
        private var subscription: ChangeSubscription?
        private var isFirst = true
        /// The task that asks again after a failure.
        private var retry: Task<Void, Never>?

        init(keeper: SessionKeeper, broker: BrokerClient, onFailure: @escaping @Sendable (SharedDeviceError) -> Void) {
            self.keeper = keeper
            self.broker = broker
            self.onFailure = onFailure
            (stream, continuation) = AsyncStream.makeStream(bufferingPolicy: .bufferingNewest(1))
            continuation.yield()
        }

        /// The next change; `nil` when the task is cancelled.
        public mutating func next(isolation: isolated (any Actor)?) async -> AccountChange? {
            while let answer = await nextAnswer(isolation) {
                switch answer {
                case .success(let change): return change
                case .failure(let error): onFailure(error)
                }
            }
            return nil
        }

        /// The next change, or why a question found none; `nil` when the task is cancelled.
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
                    // The app has hidden its screen, and must hear that it may show it again.
                    isFirst = true
                    askAgainLater()
                    return .failure(error)
                }
            }
            return nil
        }

        /// Asks again at once. The next element is the current state, even if nothing has changed.
        mutating func askAgain() {
            isFirst = true
            continuation.yield()
        }

        /// Waits for a reason to ask; returns false if the task is cancelled.
        private func wait(_ isolation: isolated (any Actor)?) async -> Bool {
            var triggers = stream.makeAsyncIterator()
            return await triggers.next(isolation: isolation) != nil
        }

        /// Asks again after a second. The broker's return makes it ask, too; this covers all other failures.
        private mutating func askAgainLater() {
            retry?.cancel()
            let continuation = continuation
            retry = Task {
                // A cancelled wait was replaced by a later one.
                guard (try? await Task.sleep(for: .seconds(1))) != nil else { return }
                continuation.yield()
            }
        }
    }
}
