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
