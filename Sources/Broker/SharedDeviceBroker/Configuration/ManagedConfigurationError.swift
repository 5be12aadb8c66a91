/// Why a managed configuration, or an app's manifest, cannot be read or watched: which file, which key, and what to do about it.
package struct ManagedConfigurationError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The kind of failure. A struct, so that a new kind breaks no `switch`.
    package struct Code: Sendable, Hashable, CustomStringConvertible {
        private enum Kind: String {
            case unreadable, insecure, tooLarge, invalidJSON, invalidPropertyList, signed, wrongType, invalidValue
            case contradiction, cannotWatch
        }

        private let kind: Kind

        /// The file is there and cannot be read.
        package static let unreadable = Code(kind: .unreadable)
        /// Anyone may write to the file.
        package static let insecure = Code(kind: .insecure)
        /// The file is too large to be a configuration.
        package static let tooLarge = Code(kind: .tooLarge)
        /// The content is not JSON, or no object.
        package static let invalidJSON = Code(kind: .invalidJSON)
        /// The content looks like a property list and is none, or no dictionary.
        package static let invalidPropertyList = Code(kind: .invalidPropertyList)
        /// The content is a signed or encrypted profile.
        package static let signed = Code(kind: .signed)
        /// A key's value is of the wrong type.
        package static let wrongType = Code(kind: .wrongType)
        /// A key's value is of the right type, and means nothing.
        package static let invalidValue = Code(kind: .invalidValue)
        /// Two places that must agree do not: two values of one key, or two files.
        package static let contradiction = Code(kind: .contradiction)
        /// The system cannot tell of changes to the file.
        package static let cannotWatch = Code(kind: .cannotWatch)

        /// The code's name.
        package var description: String { kind.rawValue }
    }

    /// The kind of failure.
    package let code: Code
    /// The file's path.
    package let file: String
    /// The key whose value is wrong, if it is one.
    package let key: String?
    /// What is wrong.
    package let message: String
    /// What helps.
    package let remedy: String

    init(_ code: Code, file: String, key: String? = nil, message: String, remedy: String) {
        self.code = code
        self.file = file
        self.key = key
        self.message = message
        self.remedy = remedy
    }

    /// One line: the file, the key, what is wrong, and the remedy.
    package var description: String {
        let place = key.map { "\(file): \"\($0)\"" } ?? file
        return "\(place): \(message); \(remedy)"
    }
}
