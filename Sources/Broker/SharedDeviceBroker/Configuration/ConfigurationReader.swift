import Foundation

/// Reads values by key, each with its type and its bounds. A key that is absent is `nil`; one that is there and wrong is an
/// error, never a guess.
struct ConfigurationReader {
    let file: String
    let format: ConfigurationFormat
    let values: [String: ConfigurationValue]

    /// A Boolean. Nothing else counts: an integer 1 was meant for another key.
    func boolean(_ key: String) throws(ManagedConfigurationError) -> Bool? {
        switch values[key] {
        case nil: nil
        case .boolean(let value)?: value
        default: throw wrongType(key, .boolean)
        }
    }

    /// An integer that is 0 or 1, as the SSO plug-in has its switches. In JSON also a Boolean.
    func flag(_ key: String) throws(ManagedConfigurationError) -> Bool? {
        switch values[key] {
        case nil: nil
        case .integer(0)?: false
        case .integer(1)?: true
        case .boolean(let value)? where format == .json: value
        case .integer(let value)?:
            throw invalid(key, "it is \(value)", remedy: "write \(format.writing(.flag)), or leave the key out")
        default: throw wrongType(key, .flag)
        }
    }

    /// Any string.
    func text(_ key: String) throws(ManagedConfigurationError) -> String? {
        switch values[key] {
        case nil: nil
        case .string(let value)?: value
        default: throw wrongType(key, .string)
        }
    }

    /// A string with something in it.
    func string(_ key: String) throws(ManagedConfigurationError) -> String? {
        guard let value = try text(key) else { return nil }
        guard !value.allSatisfy(\.isWhitespace) else { throw invalid(key, "it is empty", remedy: "leave the key out") }
        return value
    }

    /// An array of strings, which may be empty.
    func strings(_ key: String) throws(ManagedConfigurationError) -> [String]? {
        guard let value = values[key] else { return nil }
        guard case .array(let elements) = value else { throw wrongType(key, .strings) }
        var strings: [String] = []
        for element in elements {
            guard case .string(let string) = element else { throw wrongType(key, .strings) }
            strings.append(string)
        }
        return strings
    }

    /// A string that lists identifiers with commas between. Blanks around them do not count.
    func identifiers(_ key: String) throws(ManagedConfigurationError) -> [String]? {
        guard let value = try text(key) else { return nil }
        let identifiers = value.split(separator: ",", omittingEmptySubsequences: false)
            .map { $0.trimmingCharacters(in: .whitespacesAndNewlines) }
        for identifier in identifiers {
            // An empty prefix would be the beginning of every identifier.
            guard !identifier.isEmpty else {
                throw invalid(
                    key,
                    value.allSatisfy(\.isWhitespace) ? "it is empty" : "it has an empty element",
                    remedy: "write identifiers with one comma between each two, or leave the key out"
                )
            }
            guard identifier.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }) else {
                throw invalid(
                    key,
                    "“\(identifier)” is no identifier",
                    remedy: "write identifiers such as com.example.app, with commas between"
                )
            }
        }
        return identifiers
    }

    /// A number of seconds, at most a year of them.
    func seconds(_ key: String, mayBeZero: Bool) throws(ManagedConfigurationError) -> Duration? {
        let seconds: Double
        switch values[key] {
        case nil: return nil
        case .integer(let value)?: seconds = Double(value)
        case .number(let value)?: seconds = value
        default: throw wrongType(key, .number)
        }
        let year = 366.0 * 86_400
        // A comparison with what is not a number is false.
        guard seconds >= 0, seconds <= year, mayBeZero || seconds > 0 else {
            throw invalid(
                key,
                "it is \(seconds) seconds",
                remedy:
                    "write a number of seconds, \(mayBeZero ? "0 or more" : "more than 0") and at most a year, or leave "
                    + "the key out"
            )
        }
        return .seconds(seconds)
    }

    func wrongType(_ key: String, _ type: ConfigurationFormat.ValueType) -> ManagedConfigurationError {
        .wrongType(file: file, key: key, remedy: "write \(format.writing(type)), or leave the key out")
    }

    func invalid(_ key: String, _ message: String, remedy: String) -> ManagedConfigurationError {
        ManagedConfigurationError(.invalidValue, file: file, key: key, message: message, remedy: remedy)
    }
}

extension ManagedConfigurationError {
    static func wrongType(file: String, key: String, remedy: String) -> ManagedConfigurationError {
        ManagedConfigurationError(
            .wrongType,
            file: file,
            key: key,
            message: "the value is of the wrong type",
            remedy: remedy
        )
    }
}

extension ConfigurationReader {
    /// The configuration that the values say, each key checked.
    ///
    /// - Throws: `ManagedConfigurationError`: `wrongType`, `invalidValue`.
    func configuration(unknownKeys: [String]) throws(ManagedConfigurationError) -> ManagedConfiguration {
        ManagedConfiguration(
            sharedDeviceMode: try boolean(.sharedDeviceMode) ?? false,
            organization: try text(ConfigurationKey.organization.rawValue),
            tenantIdentifier: try string(.tenantIdentifier),
            cleanup: try cleanup(),
            eligibility: try lists(),
            requiresEnrolment: try boolean(.requiresEnrolment),
            requiresJoin: try boolean(.requiresJoin) ?? false,
            automaticSignOut: try automaticSignOut(),
            endSessionURL: try endSessionURL(),
            ssoExtension: try ssoExtension(),
            unknownKeys: unknownKeys
        )
    }

    private func boolean(_ key: ConfigurationKey) throws(ManagedConfigurationError) -> Bool? {
        try boolean(key.rawValue)
    }
    private func flag(_ key: ConfigurationKey) throws(ManagedConfigurationError) -> Bool? { try flag(key.rawValue) }
    private func string(_ key: ConfigurationKey) throws(ManagedConfigurationError) -> String? {
        try string(key.rawValue)
    }

    private func cleanup() throws(ManagedConfigurationError) -> CleanupPolicy {
        let key = ConfigurationKey.cleanupPolicy.rawValue
        let isStrict: Bool
        switch try text(key) {
        case nil, "advisory"?: isStrict = false
        case "strict"?: isStrict = true
        case let other?:
            throw invalid(key, "it is “\(other)”", remedy: "write advisory or strict, or leave the key out")
        }
        let timeout = try seconds(ConfigurationKey.cleanupTimeout.rawValue, mayBeZero: true)
        return CleanupPolicy(isStrict: isStrict, timeout: timeout)
    }

    private func automaticSignOut() throws(ManagedConfigurationError) -> AutomaticSignOut {
        let key = ConfigurationKey.shiftEnds.rawValue
        var shiftEnds: [TimeOfDay] = []
        for text in try strings(key) ?? [] {
            guard let time = TimeOfDay(text) else {
                throw invalid(
                    key,
                    "“\(text)” is no time of day",
                    remedy: "write each as HH:MM, from 00:00 to 23:59, such as 07:30"
                )
            }
            shiftEnds.append(time)
        }
        return AutomaticSignOut(
            inactivity: try seconds(ConfigurationKey.inactivityTimeout.rawValue, mayBeZero: false),
            shiftEnds: shiftEnds,
            onScreenLock: try boolean(.signOutOnScreenLock) ?? false,
            onLogout: try boolean(.signOutOnLogout) ?? false
        )
    }

    private func lists() throws(ManagedConfigurationError) -> AppLists {
        AppLists(
            allowed: try identifiers(ConfigurationKey.appAllowList.rawValue),
            blocked: try identifiers(ConfigurationKey.appBlockList.rawValue) ?? [],
            allowedPrefixes: try identifiers(ConfigurationKey.appPrefixAllowList.rawValue),
            cookiePrefixes: try identifiers(ConfigurationKey.appCookieSSOAllowList.rawValue) ?? [],
            allowsAllManagedApps: try flag(.enableSSOOnAllManagedApps) ?? false
        )
    }

    private func ssoExtension() throws(ManagedConfigurationError) -> ExtensionProfile {
        ExtensionProfile(
            type: try extensionType(),
            extensionIdentifier: try string(.extensionIdentifier),
            teamIdentifier: try string(.teamIdentifier),
            urls: try urls(),
            allowsBrowserInteraction: try flag(.browserSSOInteractionEnabled) ?? true,
            disablesAppPrompt: try flag(.disableExplicitAppPrompt) ?? true,
            disablesAppPromptAndSignsIn: try flag(.disableExplicitAppPromptAndAutologin) ?? false,
            disablesNativeAppPrompt: try flag(.disableExplicitNativeAppPrompt) ?? false,
            disablesNativeAppPromptAndSignsIn: try flag(.disableExplicitNativeAppPromptAndAutologin) ?? false,
            disablesSignInInsideApps: try flag(.disableInAppSSOSignIn) ?? false,
            isDebugModeEnabled: try flag(.adminDebugModeEnabled) ?? false,
            deviceRegistration: try string(.deviceRegistration)
        )
    }

    private func extensionType() throws(ManagedConfigurationError) -> String? {
        let key = ConfigurationKey.type.rawValue
        guard let type = try text(key) else { return nil }
        // An extension of the type Credential answers challenges and has no URLs of its own.
        guard type == "Redirect" else {
            throw invalid(key, "it is “\(type)”", remedy: "write Redirect, or leave the key out")
        }
        return type
    }

    private func urls() throws(ManagedConfigurationError) -> [URL] {
        let key = ConfigurationKey.urls.rawValue
        var urls: [URL] = []
        for text in try strings(key) ?? [] {
            guard let url = WebAddress.url(text, allowsLocalHTTP: false), url.query == nil, url.fragment == nil else {
                throw invalid(
                    key,
                    "“\(text)” is no https address of a site",
                    remedy: "write each as https://login.example.com, without ? or #"
                )
            }
            urls.append(url)
        }
        return urls
    }

    private func endSessionURL() throws(ManagedConfigurationError) -> URL? {
        let key = ConfigurationKey.endSessionURL.rawValue
        guard let text = try text(key) else { return nil }
        guard let url = WebAddress.url(text, allowsLocalHTTP: true) else {
            throw invalid(
                key,
                "“\(text)” is no https address",
                remedy:
                    "write an address such as https://login.example.com/logout (http for this machine only), or leave the "
                    + "key out"
            )
        }
        return url
    }
}

/// Addresses of sites that a configuration may name.
enum WebAddress {
    /// The address, if it is `https` with a host and without a user's name in it.
    ///
    /// - Parameter allowsLocalHTTP: Whether `http` will do for this machine, where nobody listens between.
    static func url(_ text: String, allowsLocalHTTP: Bool) -> URL? {
        // Without encoding what is not allowed: a blank in an address is a mistake.
        guard let url = URL(string: text, encodingInvalidCharacters: false),
            let host = url.host(percentEncoded: false), !host.isEmpty, url.user == nil, url.password == nil
        else { return nil }
        switch url.scheme?.lowercased() {
        case "https": return url
        case "http" where allowsLocalHTTP && ["localhost", "127.0.0.1", "::1", "[::1]"].contains(host): return url
        default: return nil
        }
    }
}
