/// Whether the next sign-in waits until everybody has cleaned up after the last session.
package struct CleanupPolicy: Sendable, Equatable {
    /// Whether nobody signs in while an app owes a cleanup, and apps that owe one get neither account nor token.
    package var isStrict: Bool
    /// How long a round is waited for at most; `nil`: under a strict policy until it is complete, otherwise not at all.
    package var timeout: Duration?

    package init(isStrict: Bool, timeout: Duration? = nil) {
        self.isStrict = isStrict
        self.timeout = timeout
    }

    /// Nobody waits; what is owed is on record.
    package static let advisory = CleanupPolicy(isStrict: false)
    /// The next sign-in waits until the last cleanup is reported.
    package static let strict = CleanupPolicy(isStrict: true)
}
