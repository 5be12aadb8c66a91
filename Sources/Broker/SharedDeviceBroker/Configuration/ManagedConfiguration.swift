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
    /// The tenant whose users may sign in; `nil`: of any.
    package let tenantIdentifier: String?
    /// What the next sign-in waits for.
    package let cleanup: CleanupPolicy
    /// Which apps take part that were not made for it.
    package let eligibility: AppLists
    /// Whether only apps with a manifest take part.
    package let requiresEnrolment: Bool
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

    /// - Parameter requiresEnrolment: `nil`: as the cleanup policy needs it, so `true` where that is strict. An app that nobody
    ///   knows cannot be waited for.
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
        self.requiresEnrolment = requiresEnrolment ?? cleanup.isStrict
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
