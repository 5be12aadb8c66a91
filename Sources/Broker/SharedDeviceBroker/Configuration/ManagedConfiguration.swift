package import Foundation

/// What the administrator, or the management system for them, has set for this device.
///
/// The keys are those of Microsoft Authenticator's profile and app configuration, and some that are this project's own. They
/// come as a JSON object or as an Apple property list; see ``ManagedConfigurationDocument``.
package struct ManagedConfiguration: Sendable, Equatable {
    /// Whether the device is shared. `false` where the key is absent.
    package let sharedDeviceMode: Bool
    /// Whose device it is, for display.
    package let organization: String?
    /// The tenant whose users may sign in; `nil` means any tenant.
    package let tenantIdentifier: String?
    /// What the next sign-in waits for.
    package let cleanup: CleanupPolicy
    /// Which apps take part that were not made for it.
    package let eligibility: AppLists
    /// Whether only apps with a manifest take part; `nil` means: where the cleanup policy is strict, because nobody waits for an app that
    /// nobody knows, and where more than one user reaches the broker's bus.
    package let requiresEnrolment: Bool?
    /// Whether the device must have been joined to the organization before anybody may sign in.
    package let requiresJoin: Bool
    /// When the device signs its user out by itself.
    package let automaticSignOut: AutomaticSignOut
    /// The identity provider's page that ends its session in a browser: `https`, or `http` on this machine.
    package let endSessionURL: URL?
    /// What else the profile says.
    package let ssoExtension: ExtensionProfile
    /// Keys in the file that mean nothing to this version, in alphabetical order: perhaps a misspelling, see
    /// ``suggestion(forUnknownKey:)``.
    package let unknownKeys: [String]

    /// The mode that the device is to be in.
    package var mode: ManagedMode { sharedDeviceMode ? .shared : .personal }

    package init(
        sharedDeviceMode: Bool,
        organization: String? = nil,
        tenantIdentifier: String? = nil,
        cleanup: CleanupPolicy = CleanupPolicy(),
        eligibility: AppLists = AppLists(),
        requiresEnrolment: Bool? = nil,
        requiresJoin: Bool = false,
        automaticSignOut: AutomaticSignOut = AutomaticSignOut(),
        endSessionURL: URL? = nil,
        ssoExtension: ExtensionProfile = ExtensionProfile(),
        unknownKeys: [String] = []
    ) {
        self.sharedDeviceMode = sharedDeviceMode
        self.organization = organization
        self.tenantIdentifier = tenantIdentifier
        self.cleanup = cleanup
        self.eligibility = eligibility
        self.requiresEnrolment = requiresEnrolment
        self.requiresJoin = requiresJoin
        self.automaticSignOut = automaticSignOut
        self.endSessionURL = endSessionURL
        self.ssoExtension = ssoExtension
        self.unknownKeys = unknownKeys
    }

    /// The key that an unknown one is probably meant to be, if one is close.
    package static func suggestion(forUnknownKey key: String) -> String? {
        KeySuggestion.nearest(to: key, among: ConfigurationKey.allCases.map(\.rawValue))
    }
}

/// What the next sign-in waits for after somebody has signed out.
package struct CleanupPolicy: Sendable, Equatable {
    /// Whether the next sign-in waits until the apps have deleted the data of those before.
    ///
    /// Otherwise the policy is advisory: apps are told and reminded, and nobody waits for them.
    package var isStrict: Bool
    /// How long the next sign-in waits at most, if that is set.
    package var timeout: Duration?

    package init(isStrict: Bool = false, timeout: Duration? = nil) {
        self.isStrict = isStrict
        self.timeout = timeout
    }

    /// How long the next sign-in waits at most; `nil` means without limit. Without a `timeout`, a strict policy waits until
    /// all apps are done, and an advisory policy does not wait.
    package var longestWait: Duration? { timeout ?? (isStrict ? nil : .zero) }

    /// Nobody waits; the ledger records what apps owe.
    package static let advisory = CleanupPolicy()
    /// The next sign-in waits until all is done.
    package static let strict = CleanupPolicy(isStrict: true)
}

/// The SSO plug-in's lists of apps that take part although they were not made for shared device mode.
///
/// Identifiers are compared byte by byte. ``AppEligibility`` says what the lists mean together.
package struct AppLists: Sendable, Equatable {
    /// Exact identifiers that take part: `AppAllowList`. `nil` where the key is absent.
    package var allowed: [String]?
    /// Exact identifiers that do not: `AppBlockList`.
    package var blocked: [String]
    /// Beginnings of identifiers that take part: `AppPrefixAllowList`. `nil` where the key is absent.
    package var allowedPrefixes: [String]?
    /// Beginnings of identifiers of apps that would need cookies: `AppCookieSSOAllowList`. Without effect on Linux.
    package var cookiePrefixes: [String]
    /// Whether all enrolled apps take part: `Enable_SSO_On_All_ManagedApps`.
    package var allowsAllManagedApps: Bool

    package init(
        allowed: [String]? = nil,
        blocked: [String] = [],
        allowedPrefixes: [String]? = nil,
        cookiePrefixes: [String] = [],
        allowsAllManagedApps: Bool = false
    ) {
        self.allowed = allowed
        self.blocked = blocked
        self.allowedPrefixes = allowedPrefixes
        self.cookiePrefixes = cookiePrefixes
        self.allowsAllManagedApps = allowsAllManagedApps
    }

    /// Whether there is a list of those that take part, so that the others do not.
    package var isExclusive: Bool { allowed != nil || allowedPrefixes != nil }
}

/// When the device signs its user out by itself.
package struct AutomaticSignOut: Sendable, Equatable {
    /// How long the device may be unused; more than zero. `nil` means without limit.
    package var inactivity: Duration?
    /// At these local times each day; sorted, each once.
    package private(set) var shiftEnds: [TimeOfDay]
    /// When the screen is locked.
    package var onScreenLock: Bool
    /// When the desktop session ends.
    package var onLogout: Bool

    package init(
        inactivity: Duration? = nil,
        shiftEnds: [TimeOfDay] = [],
        onScreenLock: Bool = false,
        onLogout: Bool = false
    ) {
        self.inactivity = inactivity
        self.shiftEnds = Set(shiftEnds).sorted()
        self.onScreenLock = onScreenLock
        self.onLogout = onLogout
    }
}

/// A time of a local day, to the minute.
package struct TimeOfDay: Sendable, Hashable, Comparable, CustomStringConvertible {
    /// 0 to 23.
    package let hour: Int
    /// 0 to 59.
    package let minute: Int

    /// Fails where `text` is not of the form “HH:MM”, with two digits each, from 00:00 to 23:59.
    package init?(_ text: String) {
        let digits = Array(text.utf8)
        guard digits.count == 5, digits[2] == UInt8(ascii: ":"),
            let hour = Self.number(digits[0], digits[1]), let minute = Self.number(digits[3], digits[4]),
            hour < 24, minute < 60
        else { return nil }
        self.hour = hour
        self.minute = minute
    }

    private static func number(_ tens: UInt8, _ units: UInt8) -> Int? {
        let digits = UInt8(ascii: "0")...UInt8(ascii: "9")
        guard digits.contains(tens), digits.contains(units) else { return nil }
        return Int(tens - digits.lowerBound) * 10 + Int(units - digits.lowerBound)
    }

    package static func < (left: TimeOfDay, right: TimeOfDay) -> Bool {
        (left.hour, left.minute) < (right.hour, right.minute)
    }

    /// “HH:MM”.
    package var description: String { (hour < 10 ? "0" : "") + "\(hour):" + (minute < 10 ? "0" : "") + "\(minute)" }
}

/// What the profile of Apple's single sign-on extension says besides the mode and the apps.
///
/// It is read and checked, so that one profile serves a fleet of both systems. Nothing of it has an effect on Linux, where
/// no such extension stands between apps, browsers and the network.
package struct ExtensionProfile: Sendable, Equatable {
    /// `Type`: always `Redirect` where the key is present.
    package var type: String?
    /// `ExtensionIdentifier`: the extension's bundle identifier.
    package var extensionIdentifier: String?
    /// `TeamIdentifier`: who has signed the extension.
    package var teamIdentifier: String?
    /// `URLs`: the identity provider's, each `https`.
    package var urls: [URL]
    /// `browser_sso_interaction_enabled`.
    package var allowsBrowserInteraction: Bool
    /// `disable_explicit_app_prompt`.
    package var disablesAppPrompt: Bool
    /// `disable_explicit_app_prompt_and_autologin`.
    package var disablesAppPromptAndSignsIn: Bool
    /// `disable_explicit_native_app_prompt`.
    package var disablesNativeAppPrompt: Bool
    /// `disable_explicit_native_app_prompt_and_autologin`.
    package var disablesNativeAppPromptAndSignsIn: Bool
    /// `disable_inapp_sso_signin`.
    package var disablesSignInInsideApps: Bool
    /// `admin_debug_mode_enabled`.
    package var isDebugModeEnabled: Bool
    /// `device_registration`.
    package var deviceRegistration: String?

    package init(
        type: String? = nil,
        extensionIdentifier: String? = nil,
        teamIdentifier: String? = nil,
        urls: [URL] = [],
        allowsBrowserInteraction: Bool = true,
        disablesAppPrompt: Bool = true,
        disablesAppPromptAndSignsIn: Bool = false,
        disablesNativeAppPrompt: Bool = false,
        disablesNativeAppPromptAndSignsIn: Bool = false,
        disablesSignInInsideApps: Bool = false,
        isDebugModeEnabled: Bool = false,
        deviceRegistration: String? = nil
    ) {
        self.type = type
        self.extensionIdentifier = extensionIdentifier
        self.teamIdentifier = teamIdentifier
        self.urls = urls
        self.allowsBrowserInteraction = allowsBrowserInteraction
        self.disablesAppPrompt = disablesAppPrompt
        self.disablesAppPromptAndSignsIn = disablesAppPromptAndSignsIn
        self.disablesNativeAppPrompt = disablesNativeAppPrompt
        self.disablesNativeAppPromptAndSignsIn = disablesNativeAppPromptAndSignsIn
        self.disablesSignInInsideApps = disablesSignInInsideApps
        self.isDebugModeEnabled = isDebugModeEnabled
        self.deviceRegistration = deviceRegistration
    }
}

extension ManagedConfiguration {
    /// Every key with its value, defaults filled in; `null` where there is none. Written as JSON without what is `null`, this
    /// is a file that means the same.
    package var settings: [(key: ConfigurationKey, value: ConfigurationValue)] {
        ConfigurationKey.allCases.map { (key: $0, value: value(of: $0)) }
    }

    /// A file that means the same, as JSON.
    package var json: Data {
        // Without a timeout the policy has its own longest wait, which is not the same as one that is set.
        let settings = settings.filter { $0.value != .null && ($0.key != .cleanupTimeout || cleanup.timeout != nil) }
        let fields = settings.map { "\(ConfigurationValue.string($0.key.rawValue).json): \($0.value.json)" }
        return Data("{\(fields.joined(separator: ", "))}".utf8)
    }

    private func value(of key: ConfigurationKey) -> ConfigurationValue {
        switch key {
        case .sharedDeviceMode: .boolean(sharedDeviceMode)
        case .organization: .optional(organization)
        case .tenantIdentifier: .optional(tenantIdentifier)
        case .cleanupPolicy: .string(cleanup.isStrict ? "strict" : "advisory")
        case .cleanupTimeout: .seconds(cleanup.longestWait)
        case .requiresEnrolment: requiresEnrolment.map { .boolean($0) } ?? .null
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
