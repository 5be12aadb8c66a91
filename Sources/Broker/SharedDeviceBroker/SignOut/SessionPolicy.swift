import Foundation

/// What the administrator wants of sessions: who may have one, and when it ends by itself.
package struct SessionPolicy: Sendable, Equatable {
    /// Whether the device has to be joined to its organisation before anybody signs in.
    package var requiresJoin = false
    /// Whose users may sign in on a device that is not joined; `nil` for anybody's.
    package var tenantIdentifier: String?
    /// When the clock ends a session.
    package var schedule = SignOutSchedule.Settings()
    /// Whether locking the screen signs out.
    package var endsAtScreenLock = false
    /// Whether the end of the login session signs out.
    package var endsAtLogout = false
    /// The identity provider's end-session page, for the browsers of those who sign out (OpenID Connect RP-Initiated Logout 1.0, section
    /// 2), with whatever query the administrator gives it.
    package var endSessionURL: String?

    package init() {}

    /// What the managed configuration says of it.
    package init(_ configuration: ManagedConfiguration) {
        requiresJoin = configuration.requiresJoin
        tenantIdentifier = configuration.tenantIdentifier
        schedule.inactivity = configuration.automaticSignOut.inactivity
        schedule.shiftEnds = Set(configuration.automaticSignOut.shiftEnds.map { $0.hour * 60 + $0.minute })
        endsAtScreenLock = configuration.automaticSignOut.onScreenLock
        endsAtLogout = configuration.automaticSignOut.onLogout
        endSessionURL = configuration.endSessionURL?.absoluteString
    }
}
