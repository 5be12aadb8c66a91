/// An argument that a `CFNotificationCenter` function cannot use. `NotifyCenter`'s `UnthrownFailures` has it, as those
/// functions return no error.
public struct ArgumentError: Error, Sendable, Hashable, CustomStringConvertible {
    /// Which argument, or which part of it: `object`, `userInfo["a"][2]`.
    public let argument: String
    /// What it is.
    public let found: String
    /// What helps.
    public let remedy: String

    init(argument: String, found: String, remedy: String) {
        self.argument = argument
        self.found = found
        self.remedy = remedy
    }

    /// One line with all of it.
    public var description: String { "\(argument) is \(found); \(remedy)" }
}
