package import Foundation

/// A configuration, its format, and warnings for the administrator.
///
/// The content may be a JSON object, or an Apple property list in XML or binary form: a profile (`.mobileconfig`), one
/// payload of a profile, or the keys of the extension or the app alone. The content tells which.
package struct ManagedConfigurationDocument: Sendable, Equatable {
    /// Something that is probably a mistake, or has no effect. The configuration is valid.
    package struct Warning: Sendable, Hashable, CustomStringConvertible {
        /// The key that it is about, if it is one.
        package let key: String?
        /// A sentence. Its subject is the key, if there is one.
        package let message: String

        /// One line: the key and the message.
        package var description: String { key.map { "\"\($0)\" \(message)" } ?? message }
    }

    /// The form of the content.
    package let format: ConfigurationFormat
    /// What it says.
    package let configuration: ManagedConfiguration
    /// The warnings.
    package let warnings: [Warning]

    /// Reads a content.
    ///
    /// - Parameter file: Where it comes from, for the error.
    /// - Throws: `ManagedConfigurationError`: `invalidJSON`, `invalidPropertyList`, `signed`, `wrongType`, `invalidValue`,
    ///   `contradiction`.
    package init(_ content: Data, file: String) throws(ManagedConfigurationError) {
        let content = try ConfigurationContent(content, file: file)
        let sections = try ConfigurationSections(content, file: file)
        let reader = ConfigurationReader(file: file, format: content.format, values: sections.values)
        format = content.format
        configuration = try reader.configuration(unknownKeys: sections.unknownKeys)
        warnings =
            Self.unknown(configuration)
            + sections.ignoredPayloads.map { Warning(key: nil, message: "the payload \($0) is about something else") }
            + Self.doubtful(configuration, keys: sections.values.keys)
    }

    private static func unknown(_ configuration: ManagedConfiguration) -> [Warning] {
        configuration.unknownKeys.map { key in
            let meant = ManagedConfiguration.suggestion(forUnknownKey: key)
            return Warning(key: key, message: "means nothing" + (meant.map { "; is “\($0)” meant?" } ?? ""))
        }
    }

    private static func doubtful(
        _ configuration: ManagedConfiguration,
        keys: some Sequence<String>
    ) -> [Warning] {
        var warnings: [Warning] = []
        let keys = Set(keys)
        if !keys.contains(ConfigurationKey.sharedDeviceMode.rawValue) {
            warnings.append(
                Warning(
                    key: ConfigurationKey.sharedDeviceMode.rawValue,
                    message: "is absent: the device is personal"
                )
            )
        }
        let lists = configuration.eligibility
        for identifier in Set(lists.allowed ?? []).intersection(lists.blocked).sorted() {
            warnings.append(
                Warning(
                    key: ConfigurationKey.appBlockList.rawValue,
                    message: "has \(identifier), as AppAllowList has: it is blocked"
                )
            )
        }
        for key in ConfigurationKey.allCases where !key.hasEffect && keys.contains(key.rawValue) {
            warnings.append(Warning(key: key.rawValue, message: "has no effect on Linux"))
        }
        return warnings
    }
}

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
