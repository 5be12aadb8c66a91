import Foundation

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
