import Basics
public import FoundationEssentials

/// A profile for iOS, converted to the broker's configuration.
///
/// A profile may configure the device in two places: in the payload of the SSO extension, and in the app configuration
/// of the Authenticator. On iOS `sharedDeviceMode` has to be in both. Here one is enough, because one program does the
/// work of both. If both have a key, their values must be equal.
public struct ConvertedProfile: Sendable {
    public let json: Data
    public let configuration: ManagedConfiguration
    /// The omitted parts, one per line.
    public let omissions: [String]

    /// Converts a profile (`.mobileconfig`), one payload of a profile, or only the keys of the extension or the app.
    /// Each is a property list in XML or binary form.
    public init(_ content: Data, file: String) throws(ManagedConfigurationError) {
        let payloads = try ProfilePayloads(ProfileValue.members(of: content, file: file), file: file)
        var settings: [String: JSONValue] = [:]
        var omissions = payloads.ignored.map { "the payload \($0) is about something else" }
        var unknown: [String] = []
        for (key, value) in payloads.values.sorted(by: { $0.key < $1.key }) {
            if ManagedConfiguration.keyNames.contains(key) {
                settings[key] = value
            } else if Self.keysOfIOS.contains(key) {
                omissions.append("\"\(key)\" means something on iOS only")
            } else {
                unknown.append(key)
            }
        }
        omissions += KeyWarning.unknown(unknown, among: ManagedConfiguration.keyNames).map(\.description)
        self.omissions = omissions
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
        do {
            json = try encoder.encode(settings)
        } catch {
            // JSON has no infinite numbers.
            let message = "it cannot be written as JSON: \(error)"
            throw .init(.profile, file, message, remedy: "correct the value in the profile")
        }
        configuration = try ManagedConfiguration(json: json, file: file)
    }

    /// Keys of the SSO extension's profile that affect apps, browsers and the network of iOS.
    private static let keysOfIOS: Set<String> = [
        "AppCookieSSOAllowList", "Type", "ExtensionIdentifier", "TeamIdentifier", "URLs",
        "browser_sso_interaction_enabled", "disable_explicit_app_prompt", "disable_explicit_app_prompt_and_autologin",
        "disable_explicit_native_app_prompt", "disable_explicit_native_app_prompt_and_autologin",
        "disable_inapp_sso_signin", "admin_debug_mode_enabled", "device_registration",
    ]
}

/// The keys of a profile's payloads that configure the device.
private struct ProfilePayloads {
    private static let extensionType = "com.apple.extensiblesso"
    /// Payloads and declarations that configure an app.
    private static let appTypes: Set<String> = ["com.apple.app.managed", "com.apple.configuration.app.managed"]
    private static let extensionData = "ExtensionData"
    /// The possible names of a separate dictionary with the app's own keys.
    private static let appData = ["Configuration", "AppConfig"]
    /// The keys that describe a payload itself.
    private static let keysOfPayload = Set(
        [
            "Content", "Description", "DisplayName", "Enabled", "ExpirationDate", "Identifier", "Organization",
            "RemovalDisallowed", "Scope", "Type", "UUID", "Version",
        ].map { "Payload\($0)" }
    )

    private let file: String
    /// The values, with the places where they were found; `nil` is the outermost dictionary.
    private var found: [String: (value: JSONValue, place: String?)] = [:]
    private var extensionPlace: String?

    private(set) var ignored: [String] = []

    init(_ members: [String: JSONValue], file: String) throws(ManagedConfigurationError) {
        self.file = file
        if let payloads = members["PayloadContent"] {
            try addPayloads(payloads)
        } else if members["EncryptedPayloadContent"] != nil {
            throw encrypted("EncryptedPayloadContent")
        } else if members["PayloadType"] != nil {
            try addPayloads(.array([.object(members)]))
        } else {
            try add(members, place: nil)
        }
    }

    /// The values of all keys, except the keys that every payload has.
    var values: [String: JSONValue] { found.mapValues(\.value) }

    private mutating func addPayloads(_ payloads: JSONValue) throws(ManagedConfigurationError) {
        // In an encrypted profile, the value is data.
        guard let payloads = payloads.array else { throw encrypted("PayloadContent") }
        for (number, payload) in payloads.enumerated() {
            let place = "PayloadContent[\(number)]"
            guard let members = payload.object else { throw noDictionary(place) }
            let type = members["PayloadType"]?.string ?? ""
            if type == Self.extensionType, isOfAuthenticator(members) {
                if let other = extensionPlace {
                    let message = "\(other) is about the same SSO extension"
                    throw .init(.contradiction, file, key: place, message, remedy: "keep one of the two payloads")
                }
                extensionPlace = place
                try add(members, place: place)
            } else if type != Self.extensionType, let settings = try appConfiguration(members, type: type, place) {
                try add(settings.members, place: settings.place)
            } else {
                ignored.append(type.isEmpty ? place : "\(place) (\(type))")
            }
        }
        guard ignored.count < payloads.count else {
            throw .init(
                .invalidValue,
                file,
                key: "PayloadContent",
                "the profile has no payload of the type \(Self.extensionType) with sharedDeviceMode, and none that "
                    + "configures the Authenticator",
                remedy: "add one of them, or see that it is the right profile"
            )
        }
    }

    /// Whether a payload configures the extension for signing in to devices, and not, for instance, Kerberos.
    private func isOfAuthenticator(_ members: [String: JSONValue]) -> Bool {
        members["ExtensionIdentifier"]?.string == "com.microsoft.azureauthenticator.ssoextension"
            || members[Self.extensionData]?.object.map(Self.isOfUse) == true
    }

    /// The app configuration for the Authenticator in a payload other than the extension's; `nil` if there is none.
    private func appConfiguration(
        _ members: [String: JSONValue],
        type: String,
        _ place: String
    ) throws(ManagedConfigurationError) -> (members: [String: JSONValue], place: String)? {
        let isOfApp = Self.appTypes.contains(type)
        guard let name = Self.appData.first(where: { members[$0] != nil }) else {
            return isOfApp || Self.isOfUse(members) ? (members, place) : nil
        }
        guard let settings = members[name]?.object else {
            guard isOfApp else { return nil }
            throw noDictionary("\(place).\(name)")
        }
        return isOfApp || Self.isOfUse(settings) ? (settings, "\(place).\(name)") : nil
    }

    private static func isOfUse(_ members: [String: JSONValue]) -> Bool {
        members[ManagedConfiguration.Key.sharedDeviceMode.rawValue] != nil
    }

    private mutating func add(_ members: [String: JSONValue], place: String?) throws(ManagedConfigurationError) {
        // Sorted, so that the same one of two mistakes is always reported.
        for (key, value) in members.sorted(by: { $0.key < $1.key }) where !Self.keysOfPayload.contains(key) {
            if key == Self.extensionData {
                let inner = (place.map { $0 + "." } ?? "") + key
                guard let data = value.object else { throw noDictionary(inner) }
                try add(data, place: inner)
            } else if let old = found.updateValue((value, place), forKey: key), old.value != value {
                let say = [old, (value, place)].map { "\($1 ?? "the outermost dictionary") says \(Self.shortText($0))" }
                let message = "two places disagree: \(say.joined(separator: ", "))"
                let remedy = "give the key the same value in both, or keep one"
                throw .init(.contradiction, file, key: key, message, remedy: remedy)
            }
        }
    }

    private static func shortText(_ value: JSONValue) -> String {
        switch value {
        case .boolean, .number: value.text
        case .string(let text): "“\(text)”"
        case .array, .object, .null: "something else"
        }
    }

    private func noDictionary(_ key: String) -> ManagedConfigurationError {
        .init(.wrongType, file, key: key, "the value is of the wrong type", remedy: "write <dict>…</dict>")
    }

    private func encrypted(_ key: String) -> ManagedConfigurationError {
        let message = "it is not an array of payloads; the profile may be encrypted"
        return .init(.profile, file, key: key, message, remedy: "export the profile without encryption")
    }
}
