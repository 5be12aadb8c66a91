import Basics
public import DeviceStorage
import FoundationEssentials
import Identity

/// The reason why the directory refused a request. Nothing has changed.
public struct UserDirectoryError: Error, Sendable, Hashable, CustomStringConvertible {
    public enum Code: Sendable {
        /// Another user has this name, perhaps in another case.
        case usernameTaken
        case unknownUser
        case invalidUsername
        /// The display name contains characters that cannot be displayed.
        case invalidDisplayName
        case invalidTenant
        /// A group has a name that no configuration can name, or there are too many groups.
        case invalidGroups
        /// The password is empty, too short, or the username.
        case weakPassword
        /// The password cannot be hashed, or its stored hash cannot be read.
        case unusablePassword
        /// The PIN has another form than 4 to 12 digits.
        case invalidPIN
        /// The badge's number has another form than 4 to 128 printable bytes.
        case invalidBadge
        /// Another user has this badge.
        case badgeTaken
        /// The user is signed in on this device.
        case signedIn
        /// The database failed; see `storeError`.
        case storeFailed
    }

    public let code: Code
    /// The cause and the remedy.
    public let description: String
    /// The database's error, for `storeFailed`.
    public let storeError: StoreError?

    init(_ code: Code, _ description: String, storeError: StoreError? = nil) {
        (self.code, self.description, self.storeError) = (code, description, storeError)
    }

    static func usernameTaken(_ name: String) -> Self {
        Self(.usernameTaken, "there is a user \(name) already; choose another name, or remove that user first")
    }

    static func unknownUser(_ name: String) -> Self {
        Self(.unknownUser, "there is no user \(name); see them all with: shared-device user list")
    }

    static func invalidUsername(_ name: String, _ reason: String) -> Self {
        Self(.invalidUsername, "a user cannot have the name \(name): \(reason); choose another name")
    }

    static func weakPassword(_ reason: String) -> Self {
        let shortest = UserDirectory.minimumPasswordLength
        return Self(.weakPassword, "the password \(reason); choose one of \(shortest) characters or more")
    }

    public static let invalidPIN = Self(.invalidPIN, "a PIN has 4 to 12 digits; choose such a PIN")

    static func storeFailed(_ error: StoreError) -> Self { Self(.storeFailed, error.description, storeError: error) }
}
