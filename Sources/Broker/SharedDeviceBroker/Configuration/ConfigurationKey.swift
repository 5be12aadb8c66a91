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

    /// Whether the key changes anything on Linux. The others are checked all the same: a mistake in them is one on the
    /// devices that they are for.
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
