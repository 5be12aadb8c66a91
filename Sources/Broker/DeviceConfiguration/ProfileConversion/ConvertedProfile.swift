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
    ///
    /// - Parameter file: The path, for the error.
    /// - Throws: `ManagedConfigurationError`: `profile`, `wrongType`, `invalidValue`, `contradiction`.
    public init(_ content: Data, file: String) throws(ManagedConfigurationError) {
        let payloads = try ProfilePayloads(PropertyList.dictionary(content, file: file), file: file)
        var settings: [String: ProfileValue] = [:]
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
            throw .profile(file, "it cannot be written as JSON: \(error)", remedy: "correct the value in the profile")
        }
        configuration = try ManagedConfiguration(json: json, file: file)
    }

    /// Keys of the SSO extension's profile that affect apps, browsers and the network of iOS. Linux has no such
    /// extension.
    private static let keysOfIOS: Set<String> = [
        "AppCookieSSOAllowList", "Type", "ExtensionIdentifier", "TeamIdentifier", "URLs",
        "browser_sso_interaction_enabled",
        "disable_explicit_app_prompt", "disable_explicit_app_prompt_and_autologin",
        "disable_explicit_native_app_prompt",
        "disable_explicit_native_app_prompt_and_autologin", "disable_inapp_sso_signin", "admin_debug_mode_enabled",
        "device_registration",
    ]
}

/// Parses untrusted property lists.
private enum PropertyList {
    static func dictionary(_ content: Data, file: String) throws(ManagedConfigurationError) -> [String: ProfileValue] {
        if let encoding = signature(of: content) {
            throw .profile(
                file,
                "the profile is inside a signature, which is not taken off here",
                remedy: "unwrap it with: openssl smime -verify -noverify -inform \(encoding) -in \(file) "
                    + "-out unsigned.mobileconfig"
            )
        }
        // Only these two forms: the parsers of other forms recurse with each level, and deep nesting would exhaust the
        // stack.
        guard content.starts(with: "bplist".utf8) || beginsLikeXML(content) else {
            throw unusable(file, "it begins like neither XML nor a binary one")
        }
        guard content.starts(with: "bplist".utf8) || XMLNesting.isWithin(ProfileValue.maximumDepth, content) else {
            throw unusable(file, "it is nested too deeply")
        }
        let decoder = PropertyListDecoder()
        if let key = ProfileValue.Count.key { decoder.userInfo[key] = ProfileValue.Count() }
        let value: ProfileValue
        do {
            value = try decoder.decode(ProfileValue.self, from: content)
        } catch {
            guard case DecodingError.dataCorrupted(let context) = error else { throw unusable(file, "\(error)") }
            let place = (context.underlyingError as? CocoaError)?.userInfo["NSDebugDescription"] as? String
            throw unusable(file, place ?? context.debugDescription)
        }
        guard case .dictionary(let members) = value else {
            throw unusable(file, "its outermost element is not a <dict>")
        }
        return members
    }

    private static func beginsLikeXML(_ content: Data) -> Bool {
        let text = content.starts(with: [0xEF, 0xBB, 0xBF]) ? content.dropFirst(3) : content
        return text.first { ![0x20, 0x09, 0x0A, 0x0D].contains($0) } == UInt8(ascii: "<")
    }

    /// OpenSSL's name for the form of the signature (CMS) around a profile; `nil` without a signature.
    private static func signature(of content: Data) -> String? {
        if content.starts(with: "-----BEGIN ".utf8) { return "pem" }
        // A DER sequence whose length takes more than one byte, or is indefinite.
        return content.first == 0x30 && content.dropFirst().first.map { $0 >= 0x80 } == true ? "der" : nil
    }

    private static func unusable(_ file: String, _ message: String) -> ManagedConfigurationError {
        .profile(
            file,
            "not a property list: \(message)",
            remedy: "export the profile again, or check it with: plutil -lint \(file)"
        )
    }
}
