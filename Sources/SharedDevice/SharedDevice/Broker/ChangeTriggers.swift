/// The times at which a sequence asks the broker: at the start, on each change, and after a failure. Pending triggers
/// are coalesced into one request.
struct ChangeTriggers {
    private let stream: AsyncStream<Void>
    private let continuation: AsyncStream<Void>.Continuation
    private var subscription: ChangeSubscription?
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
