/// Ends a program with all of its processes, and starts it.
package protocol ProgramControl: Sendable {
    /// What it is, for people.
    var name: String { get }

    /// Ends it. On return no process of it is left, as far as this can be seen.
    ///
    /// - Throws: ``AdapterFailure`` where a process does not end, or there is no such program.
    func stop() async throws(AdapterFailure)

    /// Whether no process of it is left.
    func isStopped() async throws(AdapterFailure) -> Bool

    /// Starts it; does nothing where it runs.
    func start() async throws(AdapterFailure)
}

/// Why an adapter could not do what it was to do: what was attempted, on what, what happened, and what helps.
package struct AdapterFailure: Error, Sendable, Hashable, CustomStringConvertible {
    package let description: String

    package init(_ attempted: String, _ what: String, _ reason: String, remedy: String) {
        // Reasons come from everywhere, and some are sentences.
        description = "could not \(attempted) \(what): \(reason)\(reason.hasSuffix(".") ? "" : ".") \(remedy)"
    }

    /// A failure that says all this itself.
    init(_ error: any Error) { description = "\(error)" }
}

/// How long a program has to end by itself, and after it is killed.
package struct StopPatience: Sendable {
    /// From the request to end, which a well-behaved program follows.
    package var asked: Duration = .seconds(5)
    /// From the kill, which the kernel carries out unless the process waits for a device.
    package var killed: Duration = .seconds(10)
    /// Between two looks at what nobody reports.
    static let look = Duration.milliseconds(10)

    package init() {}
}

/// Waits, without holding a thread, until a condition holds.
///
/// - Returns: whether it held in time.
func holds(
    within patience: Duration,
    _ condition: () async throws(AdapterFailure) -> Bool
) async throws(AdapterFailure) -> Bool {
    let deadline = ContinuousClock.now + patience
    while true {
        if try await condition() { return true }
        guard ContinuousClock.now < deadline else { return false }
        // Not cancelled with its task: a cleanup that has begun goes on.
        await Task { try? await Task.sleep(for: StopPatience.look) }.value
    }
}
