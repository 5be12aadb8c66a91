import Glibc

/// Why a password cannot be hashed or checked.
package struct PasswordError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The kind of failure. A struct, so that a new kind breaks no `switch`.
    package struct Code: Sendable, Hashable, CustomStringConvertible {
        private enum Kind: String {
            case containsNUL, tooLong, malformedHash, hashingFailed
        }

        private let kind: Kind

        /// The password has a NUL character, after which crypt reads nothing.
        package static let containsNUL = Code(kind: .containsNUL)
        /// The password has more than 511 bytes.
        package static let tooLong = Code(kind: .tooLong)
        /// The stored hash is not one that this program makes.
        package static let malformedHash = Code(kind: .malformedHash)
        /// The library could not hash.
        package static let hashingFailed = Code(kind: .hashingFailed)

        /// The code's name.
        package var description: String { kind.rawValue }
    }

    /// The kind of failure.
    package let code: Code
    /// What happened, and what helps.
    package let description: String

    static let containsNUL = PasswordError(
        code: .containsNUL,
        description: "the password contains a NUL character; choose one without"
    )
    static let tooLong = PasswordError(
        code: .tooLong,
        description: "the password is longer than 511 bytes; choose a shorter one"
    )
    static let malformedHash = PasswordError(
        code: .malformedHash,
        description: "the stored password hash is not a scrypt hash; set the user's password anew"
    )

    static func hashingFailed(_ code: CInt, attempted: String) -> PasswordError {
        PasswordError(
            code: .hashingFailed,
            description: "could not \(attempted): \(String(cString: strerror(code))); a hash needs 64 MiB of memory"
        )
    }
}
