/// Stops a program with all its processes, and starts it.
public protocol ProgramControl: Sendable {
    /// A printable name.
    var name: String { get }

    /// Stops the program. On return no visible process of it is left.
    ///
    /// - Throws: ``AdapterFailure`` if a process does not end or the program does not exist.
    func stop() async throws(AdapterFailure)

    /// Whether no process of it is left.
    func isStopped() async throws(AdapterFailure) -> Bool

    /// Starts the program; does nothing if it runs.
    func start() async throws(AdapterFailure)
}

/// The failure of an adapter's task, with the attempt, its object, the cause and the remedy.
public struct AdapterFailure: Error, Sendable, Hashable, CustomStringConvertible {
    public let description: String

    public init(_ attempted: String, _ what: String, _ reason: String, remedy: String) {
        // A reason may be a full sentence.
        description = "could not \(attempted) \(what): \(reason)\(reason.hasSuffix(".") ? "" : ".") \(remedy)"
    }

    /// Wraps an error whose description already contains all parts.
    init(_ error: any Error) { description = "\(error)" }
}

/// How long a program may take to exit by itself, and after it is killed.
public struct StopPatience: Sendable {
    /// From the request to exit.
    public var asked: Duration = .seconds(5)
    /// From the kill, which takes effect unless the process waits for a device.
    public var killed: Duration = .seconds(10)
    /// The interval of polling, where the kernel reports no event.
    static let look = Duration.milliseconds(10)

    public init() {}
}

/// Waits without blocking a thread until a condition holds. Returns whether it held in time.
func holds(
    within patience: Duration,
    _ condition: () async throws(AdapterFailure) -> Bool
) async throws(AdapterFailure) -> Bool {
    let deadline = ContinuousClock.now + patience
    while true {
        if try await condition() { return true }
        guard ContinuousClock.now < deadline else { return false }
        // Not cancelled with its task, because a cleanup that has begun must finish.
        await Task { try? await Task.sleep(for: StopPatience.look) }.value
    }
}
