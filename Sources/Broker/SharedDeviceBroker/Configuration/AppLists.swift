/// Which apps take part that were not made for shared device mode, as the SSO plug-in's keys say it.
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
