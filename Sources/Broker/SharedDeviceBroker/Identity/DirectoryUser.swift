package import Foundation
package import SharedDevice

/// What a user may do.
package enum UserRole: String, Sendable, CaseIterable {
    /// Sign in.
    case user
    /// Sign in, join the device to the organisation, and have it leave.
    case administrator
}

/// A person who may sign in on this device, as the embedded directory knows them.
package struct DirectoryUser: Sendable {
    /// The account that signing in gives.
    package let account: Account
    /// What the user may do beyond signing in.
    package let role: UserRole
    /// Whether signing in is refused for now.
    package let isDisabled: Bool
    /// When the user was added, to the second.
    package let createdAt: Date
}
