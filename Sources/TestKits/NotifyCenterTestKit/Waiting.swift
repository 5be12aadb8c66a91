/// Waits, without holding a thread, until `condition` holds.
///
/// - Throws: ``WaitFailure`` when time runs out, or the error of a cancelled task.
public func eventually(
    _ what: String = "the condition",
    within timeout: Duration = .seconds(60),
    _ condition: () async throws -> Bool
) async throws {
    let deadline = ContinuousClock.now + timeout
    while !(try await condition()) {
        guard ContinuousClock.now < deadline else { throw WaitFailure(what: what, timeout: timeout) }
        try await Task.sleep(for: .milliseconds(2))
    }
}

/// A condition that did not come true in time.
public struct WaitFailure: Error, CustomStringConvertible {
    let what: String
    let timeout: Duration

    /// What was waited for, and how long.
    public var description: String { "\(what) did not come true within \(timeout)" }
}
