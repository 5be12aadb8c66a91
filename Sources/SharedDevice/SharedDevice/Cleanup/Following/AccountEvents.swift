/// Account changes and the questions that the broker did not answer, as one sequence. Of several that nobody has taken yet, the
/// last is kept: each says where things stand, and a change names all that is left to clean up.
final class AccountEvents: Sendable {
    enum Event: Sendable {
        case changed(AccountChange)
        case failed(SharedDeviceError)
    }

    let stream: AsyncStream<Event>
    private let task: Task<Void, Never>

    /// Asks from here on, until ``stop()`` or the end of life.
    init(_ application: SharedDeviceApplication) {
        let (stream, continuation) = AsyncStream.makeStream(of: Event.self, bufferingPolicy: .bufferingNewest(1))
        self.stream = stream
        task = Task {
            for await change in application.accountChanges(onFailure: { continuation.yield(.failed($0)) }) {
                continuation.yield(.changed(change))
            }
            continuation.finish()
        }
    }

    deinit { task.cancel() }

    func stop() { task.cancel() }
}
