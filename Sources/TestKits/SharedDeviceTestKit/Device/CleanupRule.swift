/// Whether the device's next sign-in waits for the cleanup of the last session: what the managed configuration says of it.
public struct CleanupRule: Sendable, Hashable, Codable {
    /// The rule's name in the configuration.
    public enum Policy: String, Sendable, Codable, CaseIterable {
        /// Nobody waits; what is owed is on record.
        case advisory
        /// Nobody signs in while an app owes a cleanup.
        case strict
    }

    /// The rule.
    public var policy: Policy
    /// How long a round is waited for, in seconds; `nil` for the broker's own choice.
    public var timeout: Double?

    /// A rule; see the properties.
    public init(_ policy: Policy, timeout: Double? = nil) {
        self.policy = policy
        self.timeout = timeout
    }

    /// Nobody waits.
    public static let advisory = CleanupRule(.advisory)
    /// The next sign-in waits until everybody has cleaned up.
    public static let strict = CleanupRule(.strict)
}
