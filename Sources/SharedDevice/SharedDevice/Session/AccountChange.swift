/// Another account is on the device than this app was told before, or the same one in another session.
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

    /// Whose data is to go; usually one account, more where cleanups were missed, none at a first sign-in. It may name
    /// ``current`` too: somebody may have used the device in between, and the new session starts clean.
    public var previousAccounts: [Account] {
        stale.reduce(into: []) { accounts, session in
            if !accounts.contains(session.account) { accounts.append(session.account) }
        }
    }

    /// The account that this app last worked for, whose data is to go; `nil` where there is nothing to clean up. It is ``current`` only
    /// where no other is left: who looks at nothing else must hear of each other account.
    public var previous: Account? { (stale.last { $0.account != current } ?? stale.last)?.account }
}

extension AccountChange {
    /// The part of this change that concerns the data of `account`; `nil` where none of it is to go.
    package func part(of account: Account) -> AccountChange? {
        let sessions = stale.filter { $0.account == account }
        return sessions.isEmpty ? nil : AccountChange(stale: sessions, current: current, epoch: epoch)
    }
}

/// What an app is told when it asks for the current account.
package struct AccountReport: Sendable {
    /// Who is signed in, and whose data is to go.
    package let change: AccountChange
    /// The account that was reported before.
    package let previous: Account?
}

/// The changes of the device's account, as an app must follow them: it asks the broker at the start, on each of its
/// broadcasts and when it comes back, and hands out what differs from what the app was told before.
///
/// The first element comes at once and tells where things stand, with what is left to clean up from before; so does the first
/// one after a failure. A change that is not answered with ``SharedDeviceApplication/cleanupDone(_:detail:)`` is handed out again at the
/// next question, or by a new sequence at once. For one loop at a time. While the broker is away there are no elements; ``SharedDeviceApplication/accountChanges(onFailure:)`` tells why, and
/// the app keeps its screen hidden.
public struct AccountChanges: AsyncSequence, Sendable {
    private let keeper: SessionKeeper
    private let broker: BrokerClient
    private let onFailure: @Sendable (SharedDeviceError) -> Void

    init(keeper: SessionKeeper, broker: BrokerClient, onFailure: @escaping @Sendable (SharedDeviceError) -> Void) {
        self.keeper = keeper
        self.broker = broker
        self.onFailure = onFailure
    }

    /// An iterator; it listens from its first `next()` on.
    public func makeAsyncIterator() -> Iterator { Iterator(keeper: keeper, broker: broker, onFailure: onFailure) }

    /// Waits for one change after the other.
    public struct Iterator: AsyncIteratorProtocol {
        private let keeper: SessionKeeper
        private let broker: BrokerClient
        private let onFailure: @Sendable (SharedDeviceError) -> Void
        // One pending question stands for any number of reasons to ask.
        private let stream: AsyncStream<Void>
        private let continuation: AsyncStream<Void>.Continuation
        private var subscription: ChangeSubscription?
        private var isFirst = true
        /// The next question after a failure, while it is due.
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
            while await wait(isolation) {
                do throws(SharedDeviceError) {
                    if subscription == nil {
                        let continuation = continuation
                        subscription = try await broker.onChange { continuation.yield() }
                    }
                    guard let change = try await keeper.change(isFirst: isFirst) else { continue }
                    isFirst = false
                    return change
                } catch {
                    // The app has hidden what it showed, and must hear that it may show it again.
                    isFirst = true
                    onFailure(error)
                    askAgainLater()
                }
            }
            return nil
        }

        /// Waits for a reason to ask; false when the task is cancelled.
        private func wait(_ isolation: isolated (any Actor)?) async -> Bool {
            var triggers = stream.makeAsyncIterator()
            return await triggers.next(isolation: isolation) != nil
        }

        /// The broker's return is a reason by itself; this is for whatever else may be wrong.
        private mutating func askAgainLater() {
            retry?.cancel()
            let continuation = continuation
            retry = Task {
                // A cancelled wait has a later one in its place.
                guard (try? await Task.sleep(for: .seconds(1))) != nil else { return }
                continuation.yield()
            }
        }
    }
}
