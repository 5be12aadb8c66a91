/// What is wrong with a plan, and where.
public struct CheckPlanError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The place in the plan, for instance `$.steps[3].app`; `$` for the whole.
    public let path: String
    /// What is wrong, and what would be right.
    public let message: String

    init(_ path: String, _ message: String) {
        self.path = path
        self.message = message
    }

    /// One line.
    public var description: String { "\(path): \(message)" }
}
