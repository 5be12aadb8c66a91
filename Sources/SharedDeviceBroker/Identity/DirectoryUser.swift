package import Foundation
package import SharedDevice

/// A person who may sign in on this device, as the embedded directory knows them.
package struct DirectoryUser: Sendable {
    /// The account that signing in gives.
    package let account: Account
    /// Whether signing in is refused for now.
    package let isDisabled: Bool
    /// When the user was added, to the second.
    package let createdAt: Date
}
