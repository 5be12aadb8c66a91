/// The keys of the managed configuration. The raw value is the key as it is written.
package enum ConfigurationKey: String, Sendable, CaseIterable {
    case sharedDeviceMode

    case organization
    case tenantIdentifier
    case cleanupPolicy
    case cleanupTimeout
    case requiresEnrolment
    case requiresJoin
    case inactivityTimeout
    case shiftEnds
    case signOutOnScreenLock
    case signOutOnLogout
    case endSessionURL

    case enableSSOOnAllManagedApps = "Enable_SSO_On_All_ManagedApps"
    case appAllowList = "AppAllowList"
    case appBlockList = "AppBlockList"
    case appPrefixAllowList = "AppPrefixAllowList"
    case appCookieSSOAllowList = "AppCookieSSOAllowList"

    case type = "Type"
    case extensionIdentifier = "ExtensionIdentifier"
    case teamIdentifier = "TeamIdentifier"
    case urls = "URLs"
    case browserSSOInteractionEnabled = "browser_sso_interaction_enabled"
    case disableExplicitAppPrompt = "disable_explicit_app_prompt"
    case disableExplicitAppPromptAndAutologin = "disable_explicit_app_prompt_and_autologin"
    case disableExplicitNativeAppPrompt = "disable_explicit_native_app_prompt"
    case disableExplicitNativeAppPromptAndAutologin = "disable_explicit_native_app_prompt_and_autologin"
    case disableInAppSSOSignIn = "disable_inapp_sso_signin"
    case adminDebugModeEnabled = "admin_debug_mode_enabled"
    case deviceRegistration = "device_registration"

    /// Whether the key changes anything on Linux. The other keys are checked too: a mistake in them matters on the devices
    /// that they are for.
    package var hasEffect: Bool {
        switch self {
        case .type, .extensionIdentifier, .teamIdentifier, .urls, .browserSSOInteractionEnabled,
            .disableExplicitAppPrompt, .disableExplicitAppPromptAndAutologin, .disableExplicitNativeAppPrompt,
            .disableExplicitNativeAppPromptAndAutologin, .disableInAppSSOSignIn, .adminDebugModeEnabled,
            .deviceRegistration, .appCookieSSOAllowList:
            false
        default: true
        }
    }
}

/// Finds what a misspelt key was meant to be.
enum KeySuggestion {
    /// The key that is closest to `word`: it differs in case and separators only, or in at most two letters and fewer than
    /// half of a short word. `nil` if no key is that close.
    static func nearest(to word: String, among keys: [String]) -> String? {
        let letters = simplified(word)
        guard !letters.isEmpty, letters.count <= 100 else { return nil }
        return
            keys
            .map { key in (key: key, distance: distance(letters, simplified(key)), length: key.utf8.count) }
            .filter { $0.distance <= min(2, $0.length / 4) }
            .min { ($0.distance, $0.key) < ($1.distance, $1.key) }?
            .key
    }

    /// Lower case, without what separates words: `shared_device_mode` is `sharedDeviceMode`.
    private static func simplified(_ word: String) -> [UInt8] {
        word.lowercased().utf8.filter { $0 != UInt8(ascii: "_") && $0 != UInt8(ascii: "-") }
    }

    /// The letters to insert, remove, replace, or swap with the next, to make one word of the other.
    private static func distance(_ left: [UInt8], _ right: [UInt8]) -> Int {
        var rows = [Array(0...right.count)]
        for (row, letter) in left.enumerated() {
            var next = [row + 1]
            for (column, other) in right.enumerated() {
                var best = min(
                    rows[row][column + 1] + 1,
                    next[column] + 1,
                    rows[row][column] + (letter == other ? 0 : 1)
                )
                if row > 0, column > 0, letter == right[column - 1], left[row - 1] == other {
                    best = min(best, rows[row - 1][column - 1] + 1)
                }
                next.append(best)
            }
            rows.append(next)
        }
        return rows[left.count][right.count]
    }
}
