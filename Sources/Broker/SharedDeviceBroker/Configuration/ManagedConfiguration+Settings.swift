import Foundation

extension ManagedConfiguration {
    /// Every key with its value, defaults filled in; `null` where there is none. Written as JSON without what is `null`, this
    /// is a file that means the same.
    package var settings: [(key: ConfigurationKey, value: ConfigurationValue)] {
        ConfigurationKey.allCases.map { (key: $0, value: value(of: $0)) }
    }

    private func value(of key: ConfigurationKey) -> ConfigurationValue {
        switch key {
        case .sharedDeviceMode: .boolean(sharedDeviceMode)
        case .organization: .optional(organization)
        case .tenantIdentifier: .optional(tenantIdentifier)
        case .cleanupPolicy: .string(cleanup.isStrict ? "strict" : "advisory")
        case .cleanupTimeout: .seconds(cleanup.longestWait)
        case .requiresEnrolment: .boolean(requiresEnrolment)
        case .requiresJoin: .boolean(requiresJoin)
        case .inactivityTimeout: .seconds(automaticSignOut.inactivity)
        case .shiftEnds: .array(automaticSignOut.shiftEnds.map { .string($0.description) })
        case .signOutOnScreenLock: .boolean(automaticSignOut.onScreenLock)
        case .signOutOnLogout: .boolean(automaticSignOut.onLogout)
        case .endSessionURL: .optional(endSessionURL?.absoluteString)
        case .enableSSOOnAllManagedApps: .flag(eligibility.allowsAllManagedApps)
        case .appAllowList: .list(eligibility.allowed)
        case .appBlockList: .list(eligibility.blocked)
        case .appPrefixAllowList: .list(eligibility.allowedPrefixes)
        case .appCookieSSOAllowList: .list(eligibility.cookiePrefixes)
        default: extensionValue(of: key)
        }
    }

    private func extensionValue(of key: ConfigurationKey) -> ConfigurationValue {
        switch key {
        case .type: .optional(ssoExtension.type)
        case .extensionIdentifier: .optional(ssoExtension.extensionIdentifier)
        case .teamIdentifier: .optional(ssoExtension.teamIdentifier)
        case .urls: .array(ssoExtension.urls.map { .string($0.absoluteString) })
        case .browserSSOInteractionEnabled: .flag(ssoExtension.allowsBrowserInteraction)
        case .disableExplicitAppPrompt: .flag(ssoExtension.disablesAppPrompt)
        case .disableExplicitAppPromptAndAutologin: .flag(ssoExtension.disablesAppPromptAndSignsIn)
        case .disableExplicitNativeAppPrompt: .flag(ssoExtension.disablesNativeAppPrompt)
        case .disableExplicitNativeAppPromptAndAutologin: .flag(ssoExtension.disablesNativeAppPromptAndSignsIn)
        case .disableInAppSSOSignIn: .flag(ssoExtension.disablesSignInInsideApps)
        case .adminDebugModeEnabled: .flag(ssoExtension.isDebugModeEnabled)
        case .deviceRegistration: .optional(ssoExtension.deviceRegistration)
        default: .null
        }
    }
}

extension ConfigurationValue {
    fileprivate static func flag(_ value: Bool) -> ConfigurationValue { .integer(value ? 1 : 0) }

    fileprivate static func optional(_ text: String?) -> ConfigurationValue { text.map { .string($0) } ?? .null }

    fileprivate static func list(_ identifiers: [String]?) -> ConfigurationValue {
        guard let identifiers, !identifiers.isEmpty else { return .null }
        return .string(identifiers.joined(separator: ", "))
    }

    fileprivate static func seconds(_ duration: Duration?) -> ConfigurationValue {
        guard let duration else { return .null }
        let (seconds, attoseconds) = duration.components
        return attoseconds == 0 ? .integer(Int(seconds)) : .number(Double(seconds) + Double(attoseconds) / 1e18)
    }
}
