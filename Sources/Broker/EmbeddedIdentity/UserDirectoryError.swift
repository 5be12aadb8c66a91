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

    private init(_ code: Code, _ description: String, storeError: StoreError? = nil) {
        self.code = code
        self.description = description
        self.storeError = storeError
    }

    static func usernameTaken(_ name: String) -> UserDirectoryError {
        UserDirectoryError(
            .usernameTaken,
            "there is a user \(name) already; choose another name, or remove that user first"
        )
    }

    static func unknownUser(_ name: String) -> UserDirectoryError {
        UserDirectoryError(.unknownUser, "there is no user \(name); see them all with: shared-device user list")
    }

    static func invalidUsername(_ name: String, _ reason: String) -> UserDirectoryError {
        UserDirectoryError(.invalidUsername, "a user cannot have the name \(name): \(reason); choose another name")
    }

    static let invalidDisplayName = UserDirectoryError(
        .invalidDisplayName,
        "the display name is longer than 256 bytes or has invisible characters; choose another one"
    )

    static let invalidTenant = UserDirectoryError(
        .invalidTenant,
        "a tenant is named with up to 256 letters, digits, dots, hyphens and underscores of ASCII; choose such a name"
    )

    static func invalidGroup(_ name: String) -> UserDirectoryError {
        UserDirectoryError(
            .invalidGroups,
            "a group cannot have the name “\(name.printable(64))”; choose one of 1 to \(PersonGroups.longestName) bytes, "
                + "without invisible characters and blanks around it"
        )
    }

    static let tooManyGroups = UserDirectoryError(
        .invalidGroups,
        "these are more groups than a user can have; name \(PersonGroups.most) at most, "
            + "and \(PersonGroups.longestList) bytes in all"
    )

    static func weakPassword(_ reason: String) -> UserDirectoryError {
        UserDirectoryError(
            .weakPassword,
            "the password \(reason); choose one of \(UserDirectory.minimumPasswordLength) "
                + "characters or more"
        )
    }

    static func unusablePassword(_ error: PasswordError) -> UserDirectoryError {
        UserDirectoryError(.unusablePassword, error.description)
    }

    public static let invalidPIN = UserDirectoryError(.invalidPIN, "a PIN has 4 to 12 digits; choose such a PIN")

    static let invalidBadge = UserDirectoryError(
        .invalidBadge,
        "a badge has a number of 4 to 128 printable ASCII characters; set the reader to send such a number, and then Return"
    )

    static func badgeTaken(_ name: String) -> UserDirectoryError {
        UserDirectoryError(
            .badgeTaken,
            "this is the badge of \(name); take it from that user first: shared-device user badge \(name) --remove"
        )
    }

    static func signedIn(_ name: String) -> UserDirectoryError {
        UserDirectoryError(
            .signedIn,
            "\(name) is signed in on this device; sign the account out first, or remove the user with --sign-out"
        )
    }

    static func storeFailed(_ error: StoreError) -> UserDirectoryError {
        UserDirectoryError(.storeFailed, error.description, storeError: error)
    }
}

/// A valid username of the embedded directory.
struct Username: Hashable, Sendable {
    /// In bytes of UTF-8.
    static let maximumLength = longestUsername

    /// The name as the person writes it, in Unicode's composed form.
    let text: String

    /// The form in which names are compared. It ignores case.
    var key: String { usernameKey(text) }

    /// - Throws: `UserDirectoryError`: `invalidUsername` if the name is empty, longer than 256 bytes, or contains
    ///   spaces or invisible characters.
    init(_ text: String) throws(UserDirectoryError) {
        let text = text.composed
        guard !text.isEmpty else { throw .invalidUsername(text, "it is empty") }
        guard text.utf8.count <= Self.maximumLength else {
            throw .invalidUsername(
                "\(text.prefix(16).debugDescription)…",
                "it is longer than \(Self.maximumLength) bytes"
            )
        }
        guard !text.unicodeScalars.contains(where: { $0.isInvisible || $0.properties.isWhitespace }) else {
            throw .invalidUsername(text.debugDescription, "it has spaces or invisible characters")
        }
        self.text = text
    }
}
