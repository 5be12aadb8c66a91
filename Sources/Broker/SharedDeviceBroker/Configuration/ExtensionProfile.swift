package import Foundation

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
