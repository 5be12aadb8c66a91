/// What the next sign-in waits for after somebody has signed out.
package struct CleanupPolicy: Sendable, Equatable {
    /// Whether the next sign-in waits until the apps have deleted the data of those before.
    ///
    /// Otherwise the policy is advisory: apps are told and reminded, and nobody waits for them.
    package var isStrict: Bool
    /// How long the next sign-in waits at most, if that is set.
    package var timeout: Duration?

    package init(isStrict: Bool = false, timeout: Duration? = nil) {
        self.isStrict = isStrict
        self.timeout = timeout
    }

    /// How long the next sign-in waits at most; `nil` is without end. Where no `timeout` is set, a strict policy waits until
    /// all is done, and an advisory one not at all.
    package var longestWait: Duration? { timeout ?? (isStrict ? nil : .zero) }

    /// Nobody waits; what is owed is on record.
    package static let advisory = CleanupPolicy()
    /// The next sign-in waits until all is done.
    package static let strict = CleanupPolicy(isStrict: true)
}
