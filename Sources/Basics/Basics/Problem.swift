import Glibc

/// An error that only a person can act on: a sentence with the cause and the remedy, if there is one.
public struct Problem: Error, Sendable, Hashable, CustomStringConvertible {
    public let description: String

    public init(_ description: String) { self.description = description }

    /// A problem with the reason of an error number.
    public init(attempting what: String, _ code: CInt) {
        self.init("could not \(what): \(String(cString: strerror(code)))")
    }
}
