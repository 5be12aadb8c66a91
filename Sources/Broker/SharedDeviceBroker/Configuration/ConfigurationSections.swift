/// The sections of a profile that configure the device.
///
/// A profile may do so in two places: in the payload of the SSO extension, and in the app configuration of the
/// Authenticator. If both have a key, their values must be equal; otherwise there is an error.
struct ConfigurationSections {
    /// A key's value, and where it was found: `nil` is the outermost dictionary.
    private struct Found {
        let value: ConfigurationValue
        let place: String?
    }

    private static let extensionType = "com.apple.extensiblesso"
    /// Payloads and declarations that configure an app.
    private static let appTypes: Set<String> = ["com.apple.app.managed", "com.apple.configuration.app.managed"]
    private static let extensionData = "ExtensionData"
    /// Where a payload that configures an app has the app's own keys, if it has them apart.
    private static let appData = ["Configuration", "AppConfig"]

    private let file: String
    private let format: ConfigurationFormat
    private var found: [String: Found] = [:]
    private var foreign: Set<String> = []
    private var extensionPlace: String?

    /// Payloads that are about something else.
    private(set) var ignoredPayloads: [String] = []

    /// - Throws: `ManagedConfigurationError`: `wrongType`, `invalidValue`, `contradiction`, `signed`.
    init(_ content: ConfigurationContent, file: String) throws(ManagedConfigurationError) {
        self.file = file
        format = content.format
        if let payloads = content.members["PayloadContent"] {
            try addPayloads(payloads)
        } else if content.members["EncryptedPayloadContent"] != nil {
            throw encrypted("EncryptedPayloadContent")
        } else {
            try add(content.members, place: nil)
        }
    }

    /// The keys that have a meaning, with their values.
    var values: [String: ConfigurationValue] { found.mapValues(\.value) }

    /// The keys without a meaning, in alphabetical order.
    var unknownKeys: [String] { foreign.sorted() }

    private mutating func addPayloads(_ payloads: ConfigurationValue) throws(ManagedConfigurationError) {
        // An encrypted profile has data in this place.
        guard case .array(let payloads) = payloads else { throw encrypted("PayloadContent") }
        var isOfUse = false
        for (number, payload) in payloads.enumerated() {
            let place = "PayloadContent[\(number)]"
            guard case .dictionary(let members) = payload else { throw wrongType(place, .dictionary) }
            let type = if case .string(let type)? = members["PayloadType"] { type } else { "" }
            if type == Self.extensionType, isOfAuthenticator(members) {
                try takeExtension(place)
                try add(members, place: place)
            } else if type != Self.extensionType, let settings = try appConfiguration(members, type: type, place) {
                try add(settings.members, place: settings.place)
            } else {
                ignoredPayloads.append(type.isEmpty ? place : "\(place) (\(type))")
                continue
            }
            isOfUse = true
        }
        guard isOfUse else {
            throw ManagedConfigurationError(
                .invalidValue,
                file: file,
                key: "PayloadContent",
                message:
                    "the profile has no payload of the type \(Self.extensionType) with sharedDeviceMode, and none that "
                    + "configures the Authenticator",
                remedy: "add one of them, or see that it is the right profile"
            )
        }
    }

    /// Whether a payload is about the extension that signs in to devices, and not about Kerberos, say.
    private func isOfAuthenticator(_ members: [String: ConfigurationValue]) -> Bool {
        if case .string("com.microsoft.azureauthenticator.ssoextension")? = members["ExtensionIdentifier"] {
            return true
        }
        guard case .dictionary(let data)? = members[Self.extensionData] else { return false }
        return data[ConfigurationKey.sharedDeviceMode.rawValue] != nil
    }

    private mutating func takeExtension(_ place: String) throws(ManagedConfigurationError) {
        if let other = extensionPlace {
            throw ManagedConfigurationError(
                .contradiction,
                file: file,
                key: place,
                message: "\(other) is about the same SSO extension",
                remedy: "keep one of the two payloads"
            )
        }
        extensionPlace = place
    }

    /// The app configuration that a payload other than the extension's has for the Authenticator; `nil` if it has none.
    private func appConfiguration(
        _ members: [String: ConfigurationValue],
        type: String,
        _ place: String
    ) throws(ManagedConfigurationError) -> (members: [String: ConfigurationValue], place: String)? {
        for name in Self.appData {
            guard let data = members[name] else { continue }
            guard case .dictionary(let settings) = data else {
                guard Self.appTypes.contains(type) else { return nil }
                throw wrongType("\(place).\(name)", .dictionary)
            }
            guard Self.appTypes.contains(type) || Self.isOfUse(settings) else { return nil }
            return (settings, "\(place).\(name)")
        }
        return Self.appTypes.contains(type) || Self.isOfUse(members) ? (members, place) : nil
    }

    private static func isOfUse(_ members: [String: ConfigurationValue]) -> Bool {
        members[ConfigurationKey.sharedDeviceMode.rawValue] != nil
    }

    private mutating func add(
        _ members: [String: ConfigurationValue],
        place: String?
    ) throws(ManagedConfigurationError) {
        // In the order of the keys, so that of two mistakes always the same one is reported.
        for (key, value) in members.sorted(by: { $0.key < $1.key }) {
            if key == Self.extensionData {
                let inner = (place.map { $0 + "." } ?? "") + key
                guard case .dictionary(let data) = value else { throw wrongType(inner, .dictionary) }
                try add(data, place: inner)
            } else if ConfigurationKey(rawValue: key) != nil {
                try add(key, Found(value: value, place: place))
            } else if !Self.isAboutPayload(key) {
                foreign.insert(key)
            }
        }
    }

    private mutating func add(_ key: String, _ new: Found) throws(ManagedConfigurationError) {
        guard let old = found.updateValue(new, forKey: key), old.value != new.value else { return }
        let say = [old, new].map { found in
            "\(found.place ?? "the outermost dictionary") says \(found.value.shortText)"
        }
        throw ManagedConfigurationError(
            .contradiction,
            file: file,
            key: key,
            message: "two places disagree: \(say.joined(separator: ", "))",
            remedy: "give the key the same value in both, or keep one"
        )
    }

    /// What every payload says about itself.
    private static func isAboutPayload(_ key: String) -> Bool {
        guard key.hasPrefix("Payload") else { return false }
        return [
            "Content", "Description", "DisplayName", "Enabled", "ExpirationDate", "Identifier", "Organization",
            "RemovalDisallowed", "Scope", "Type", "UUID", "Version",
        ].contains(key.dropFirst("Payload".count))
    }

    private func wrongType(_ key: String, _ type: ConfigurationFormat.ValueType) -> ManagedConfigurationError {
        .wrongType(file: file, key: key, remedy: "write \(format.writing(type))")
    }

    private func encrypted(_ key: String) -> ManagedConfigurationError {
        ManagedConfigurationError(
            .signed,
            file: file,
            key: key,
            message: "it is not an array of payloads; the profile may be encrypted",
            remedy: "export the profile without encryption"
        )
    }
}

extension ConfigurationValue {
    /// The value for an error's text.
    fileprivate var shortText: String {
        switch self {
        case .boolean(let value): "\(value)"
        case .integer(let value): "\(value)"
        case .number(let value): "\(value)"
        case .string(let value): "“\(value)”"
        case .array, .dictionary, .null, .other: "something else"
        }
    }
}
