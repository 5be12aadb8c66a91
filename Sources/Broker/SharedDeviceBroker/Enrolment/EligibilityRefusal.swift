/// Why an app does not take part, and what an administrator can do about it.
package struct EligibilityRefusal: Error, Sendable, Hashable, CustomStringConvertible {
    /// The kind of refusal. A struct, so that a new kind breaks no `switch`.
    package struct Code: Sendable, Hashable, CustomStringConvertible {
        private enum Kind: String {
            case malformedIdentifier, notTheProgram, notTheUser, blocked, notEnrolled, notListed
        }

        private let kind: Kind

        /// What the app says it is can be no identifier.
        package static let malformedIdentifier = Code(kind: .malformedIdentifier)
        /// The app says that it is one whose manifest names another program.
        package static let notTheProgram = Code(kind: .notTheProgram)
        /// It is the manifest's program, run by another user than the manifest names.
        package static let notTheUser = Code(kind: .notTheUser)
        /// The block list has it.
        package static let blocked = Code(kind: .blocked)
        /// It has no manifest, and only apps with one take part.
        package static let notEnrolled = Code(kind: .notEnrolled)
        /// No list has it, and only apps on a list take part.
        package static let notListed = Code(kind: .notListed)

        /// The code's name.
        package var description: String { kind.rawValue }
    }

    /// The kind of refusal.
    package let code: Code
    /// Which app, what is wrong, and what helps.
    package let description: String

    init(_ code: Code, _ message: String, remedy: String) {
        self.code = code
        description = "\(message); \(remedy)"
    }
}
