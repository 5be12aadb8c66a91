/// The keys of a profile's payloads that configure the device.
struct ProfilePayloads {
    /// A key's value, and the place where it was found; `nil` is the outermost dictionary.
    private struct Found {
        let value: ProfileValue
        let place: String?
    }

    private static let extensionType = "com.apple.extensiblesso"
    /// Payloads and declarations that configure an app.
    private static let appTypes: Set<String> = ["com.apple.app.managed", "com.apple.configuration.app.managed"]
    private static let extensionData = "ExtensionData"
    /// The possible names of a separate dictionary with the app's own keys.
    private static let appData = ["Configuration", "AppConfig"]

    private let file: String
    private var found: [String: Found] = [:]
    private var extensionPlace: String?

    private(set) var ignored: [String] = []

    /// - Throws: `ManagedConfigurationError`: `wrongType`, `invalidValue`, `contradiction`, `profile`.
    init(_ members: [String: ProfileValue], file: String) throws(ManagedConfigurationError) {
        self.file = file
        if let payloads = members["PayloadContent"] {
            try addPayloads(payloads)
        } else if members["EncryptedPayloadContent"] != nil {
            throw encrypted("EncryptedPayloadContent")
        } else if members["PayloadType"] != nil {
            try addPayloads(.array([.dictionary(members)]))
        } else {
            try add(members, place: nil)
        }
    }

    /// The values of all keys, except the keys that every payload has.
    var values: [String: ProfileValue] { found.mapValues(\.value) }

    private mutating func addPayloads(_ payloads: ProfileValue) throws(ManagedConfigurationError) {
        // In an encrypted profile, the value is data.
        guard case .array(let payloads) = payloads else { throw encrypted("PayloadContent") }
        var isOfUse = false
        for (number, payload) in payloads.enumerated() {
            let place = "PayloadContent[\(number)]"
            guard case .dictionary(let members) = payload else { throw noDictionary(place) }
            let type = if case .string(let type)? = members["PayloadType"] { type } else { "" }
            if type == Self.extensionType, isOfAuthenticator(members) {
                try takeExtension(place)
                try add(members, place: place)
            } else if type != Self.extensionType, let settings = try appConfiguration(members, type: type, place) {
                try add(settings.members, place: settings.place)
            } else {
                ignored.append(type.isEmpty ? place : "\(place) (\(type))")
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

    /// Whether a payload configures the extension for signing in to devices, and not, for instance, Kerberos.
    private func isOfAuthenticator(_ members: [String: ProfileValue]) -> Bool {
        if case .string("com.microsoft.azureauthenticator.ssoextension")? = members["ExtensionIdentifier"] {
            return true
        }
        guard case .dictionary(let data)? = members[Self.extensionData] else { return false }
        return data[ManagedConfiguration.Key.sharedDeviceMode.rawValue] != nil
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

    /// The app configuration for the Authenticator in a payload other than the extension's; `nil` if there is none.
    private func appConfiguration(
        _ members: [String: ProfileValue],
        type: String,
        _ place: String
    ) throws(ManagedConfigurationError) -> (members: [String: ProfileValue], place: String)? {
        for name in Self.appData {
            guard let data = members[name] else { continue }
            guard case .dictionary(let settings) = data else {
                guard Self.appTypes.contains(type) else { return nil }
                throw noDictionary("\(place).\(name)")
            }
            guard Self.appTypes.contains(type) || Self.isOfUse(settings) else { return nil }
            return (settings, "\(place).\(name)")
        }
        return Self.appTypes.contains(type) || Self.isOfUse(members) ? (members, place) : nil
    }

    private static func isOfUse(_ members: [String: ProfileValue]) -> Bool {
        members[ManagedConfiguration.Key.sharedDeviceMode.rawValue] != nil
    }

    private mutating func add(_ members: [String: ProfileValue], place: String?) throws(ManagedConfigurationError) {
        // Sorted, so that the same one of two mistakes is always reported.
        for (key, value) in members.sorted(by: { $0.key < $1.key }) {
            if key == Self.extensionData {
                let inner = (place.map { $0 + "." } ?? "") + key
                guard case .dictionary(let data) = value else { throw noDictionary(inner) }
                try add(data, place: inner)
            } else if !Self.isAboutPayload(key) {
                try add(key, Found(value: value, place: place))
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

    /// Whether the key describes the payload itself.
    private static func isAboutPayload(_ key: String) -> Bool {
        guard key.hasPrefix("Payload") else { return false }
        return [
            "Content", "Description", "DisplayName", "Enabled", "ExpirationDate", "Identifier", "Organization",
            "RemovalDisallowed", "Scope", "Type", "UUID", "Version",
        ].contains(key.dropFirst("Payload".count))
    }

    private func noDictionary(_ key: String) -> ManagedConfigurationError {
        ManagedConfigurationError(
            .wrongType,
            file: file,
            key: key,
            message: "the value is of the wrong type",
            remedy: "write <dict>…</dict>"
        )
    }

    private func encrypted(_ key: String) -> ManagedConfigurationError {
        .profile(
            file,
            key: key,
            "it is not an array of payloads; the profile may be encrypted",
            remedy: "export the profile without encryption"
        )
    }
}
