import Basics
import Cryptography
public import DeviceStorage
public import FoundationEssentials
public import Identity
public import SharedDevice

/// The users who may sign in on a device without an organisation's identity provider. They are stored in the device's
/// database.
///
/// Every call blocks its thread for the database; `add`, `setPassword` and `setPIN` also for the scrypt hash, which is
/// computed outside the transaction, so that other callers do not wait for it. Nothing is cached, so changes by other
/// processes take effect at once.
///
/// Users are found by name, ignoring case. Every call throws `UserDirectoryError`: `storeFailed` if the database fails,
/// and a call that needs a user of this name `unknownUser` if there is none.
public final class UserDirectory: Sendable {
    /// The minimum number of characters in a password (NIST SP 800-63B).
    public static let minimumPasswordLength = 8

    public let passwordCost: PasswordHash.Cost
    public let database: DeviceDatabase

    public init(database: DeviceDatabase, passwordCost: PasswordHash.Cost = .ofNewHashes) {
        self.database = database
        self.passwordCost = passwordCost
    }

    /// Adds a user with a new random identifier.
    ///
    /// - Parameter tenant: The organisation that the user belongs to; `nil` for the directory's own tenant.
    /// - Throws: `usernameTaken`, `invalidUsername`, `invalidDisplayName`, `invalidTenant`, `weakPassword`,
    ///   `unusablePassword`.
    @discardableResult
    public func add(
        username: String,
        displayName: String? = nil,
        password: Secret,
        role: UserRole = .user,
        tenant: String? = nil,
        at date: Date = Date()
    ) throws(UserDirectoryError) -> DirectoryUser {
        let name = try Self.checked(username)
        if let displayName { try Self.checkDisplayName(displayName) }
        if let tenant { try Self.checkTenant(tenant) }
        try checkIsFree(username: name)
        let hash = try makeHash(password, for: name)
        return try write("add user \(name)") { db in
            guard try Self.fetch(db, username: name) == nil else { throw UserDirectoryError.usernameTaken(name) }
            let identifier = Self.makeUUID() + "." + (try tenant?.lowercased() ?? Self.tenantIdentifier(db))
            let seconds = Int64(date.timeIntervalSince1970)
            try db.run(
                """
                INSERT INTO user (identifier, username, username_key, display_name, password_hash, created_at, role)
                VALUES (?, ?, ?, ?, ?, ?, ?)
                """,
                identifier,
                name,
                usernameKey(name),
                displayName,
                hash.text,
                seconds,
                role.rawValue
            )
            let account = Account(identifier: identifier, username: name, displayName: displayName)
            let created = Date(timeIntervalSince1970: Double(seconds))
            return DirectoryUser(account: account, role: role, groups: [], isDisabled: false, createdAt: created)
        }
    }

    /// Checks that a user with this name can be added, before a password is requested.
    ///
    /// - Throws: `usernameTaken`, `invalidUsername`.
    public func checkIsFree(username: String) throws(UserDirectoryError) {
        let name = try Self.checked(username)
        guard try user(named: name) == nil else { throw .usernameTaken(name) }
    }

    /// Removes a user, and erases the user's data from the file; see `DeviceDatabase.remnants`.
    ///
    /// - Returns: The removed user.
    /// - Throws: `signedIn` if the user is the device's account: it has to be signed out first, so that the device does
    ///   not stay signed in as a removed user.
    @discardableResult
    public func remove(username: String) throws(UserDirectoryError) -> DirectoryUser {
        let removed = try write("remove user \(username)") { db in
            guard let user = try Self.fetch(db, username: username)?.user else {
                throw UserDirectoryError.unknownUser(username)
            }
            let identifier = user.account.identifier.lowercased()
            let signedIn = "SELECT EXISTS (SELECT 1 FROM device WHERE lower(account_identifier) = ?)"
            if try db.value(signedIn, identifier) == true {
                let remedy = "sign the account out first, or remove the user with --sign-out"
                throw UserDirectoryError(.signedIn, "\(user.account.username) is signed in on this device; \(remedy)")
            }
            try db.run("DELETE FROM user WHERE identifier = ?", user.account.identifier)
            // Anonymises sessions whose data an app has never deleted.
            try db.run(
                """
                UPDATE session SET account_identifier = NULL, account_username = NULL, account_display_name = NULL
                WHERE lower(account_identifier) = ?
                """,
                identifier
            )
            // Anonymises the log entries of the user.
            try db.run("DELETE FROM subject WHERE account_identifier = ?", identifier)
            return user
        }
        database.eraseRemnants()
        return removed
    }

    /// All users, sorted by name.
    public func users() throws(UserDirectoryError) -> [DirectoryUser] {
        try read("list the users") { db in
            try db.rows("\(Self.selection) ORDER BY username_key") { try Self.decode($0).user }
        }
    }

    /// The user of this name; `nil` if there is none.
    public func user(named username: String) throws(UserDirectoryError) -> DirectoryUser? {
        try read("look up a user") { try Self.fetch($0, username: username)?.user }
    }

    /// The user of this name.
    public func existingUser(named username: String) throws(UserDirectoryError) -> DirectoryUser {
        guard let user = try user(named: username) else { throw .unknownUser(username) }
        return user
    }

    /// The user with this account identifier, ignoring case; `nil` if there is none.
    public func user(withIdentifier identifier: String) throws(UserDirectoryError) -> DirectoryUser? {
        try read("look up a user") { db in
            try db.row("\(Self.selection) WHERE identifier = ?", identifier.lowercased()) { try Self.decode($0).user }
        }
    }

    /// Changes the user's password.
    ///
    /// - Throws: `weakPassword`, `unusablePassword`.
    public func setPassword(_ password: Secret, ofUserNamed username: String) throws(UserDirectoryError) {
        let user = try existingUser(named: username)
        let hash = try makeHash(password, for: user.account.username)
        try write("set the password of user \(username)") { try Self.update($0, username, "password_hash", hash.text) }
        // The old hash could be attacked offline, and the old password may be in use elsewhere.
        database.eraseRemnants()
    }

    /// Changes the user's PIN, or removes it.
    ///
    /// - Throws: `invalidPIN`, `unusablePassword`.
    public func setPIN(_ pin: Secret?, ofUserNamed username: String) throws(UserDirectoryError) {
        _ = try existingUser(named: username)
        if let pin, !pin.isPIN { throw .invalidPIN }
        let hash = try pin.map { pin throws(UserDirectoryError) in try makeHash(pin) }
        try write("set the PIN of user \(username)") { try Self.update($0, username, "pin_hash", hash?.text) }
        database.eraseRemnants()
    }

    /// Gives the user another badge, or removes it. The database has a keyed hash of the number (HMAC-SHA-256).
    ///
    /// - Throws: `invalidBadge`, `badgeTaken`.
    public func setBadge(_ number: Secret?, ofUserNamed username: String) throws(UserDirectoryError) {
        if let number, !number.isBadgeNumber {
            let rule = "a badge has a number of 4 to 128 printable ASCII characters"
            throw UserDirectoryError(.invalidBadge, "\(rule); set the reader to send such a number, and then Return")
        }
        try write("set the badge of user \(username)") { db in
            let hash = try number.map { Self.hash(of: $0, key: try Self.badgeKey(db) ?? Self.makeBadgeKey(db)) }
            let owner = try hash.flatMap { try Self.fetch(db, badge: $0)?.user.account.username }
            if let owner, usernameKey(owner) != usernameKey(username) {
                let remedy = "take it from that user first: shared-device user badge \(owner) --remove"
                throw UserDirectoryError(.badgeTaken, "this is the badge of \(owner); \(remedy)")
            }
            try Self.update(db, username, "badge_hash", hash)
        }
        // The number of a short badge can be tried out against its hash.
        database.eraseRemnants()
    }

    /// Whether a user can sign in with a badge.
    public func hasBadges() throws(UserDirectoryError) -> Bool {
        try read("look for badges") { db in
            try db.value(
                "SELECT EXISTS (SELECT 1 FROM user WHERE badge_hash IS NOT NULL AND pin_hash IS NOT NULL AND NOT disabled)"
            ) == true
        }
    }

    /// Enables or disables sign-ins of the user. An account that is signed in stays signed in, but gets no new tokens.
    public func setDisabled(_ isDisabled: Bool, forUserNamed username: String) throws(UserDirectoryError) {
        let attempted = "\(isDisabled ? "disable" : "enable") user \(username)"
        try write(attempted) { try Self.update($0, username, "disabled", isDisabled) }
    }

    /// Changes the user's role.
    public func setRole(_ role: UserRole, ofUserNamed username: String) throws(UserDirectoryError) {
        try write("set the role of user \(username)") { try Self.update($0, username, "role", role.rawValue) }
    }

    /// Replaces the user's groups. They count from the user's next sign-in on.
    ///
    /// - Throws: `invalidGroups`.
    public func setGroups(_ groups: [String], ofUserNamed username: String) throws(UserDirectoryError) {
        for group in groups { try Self.checkGroup(group) }
        guard case .known(let names) = PersonGroups(listed: groups) else {
            let limits = "name \(PersonGroups.most) at most, and \(PersonGroups.longestList) bytes in all"
            throw UserDirectoryError(.invalidGroups, "these are more groups than a user can have; \(limits)")
        }
        let text = names.sorted().joined(separator: "\n")
        try write("set the groups of user \(username)") { try Self.update($0, username, "member_of", text) }
    }

    /// The user who would be signed in, with the hash of the password or PIN; `nil` if the user has no PIN.
    func candidate(for request: SignInRequest) throws(UserDirectoryError) -> (user: DirectoryUser, hash: String?)? {
        try read("look up a user") { db in
            switch request {
            case .password(let username, _):
                try Self.fetch(db, username: username).map { ($0.user, $0.password) }
            case .pin(let username, _): try Self.fetch(db, username: username).map { ($0.user, $0.pin) }
            case .badge(let number, _):
                try Self.badgeKey(db).flatMap { try Self.fetch(db, badge: Self.hash(of: number, key: $0)) }
                    .map { ($0.user, $0.pin) }
            }
        }
    }
}

// MARK: - Rows

extension UserDirectory {
    /// A user with the hashes of password and PIN. A user without a PIN has no hash of one.
    private typealias StoredUser = (user: DirectoryUser, password: String, pin: String?)

    private static let selection = "SELECT * FROM user"

    private static func fetch(_ db: SQLiteConnection, username: String) throws -> StoredUser? {
        try db.row("\(selection) WHERE username_key = ?", usernameKey(username)) { try decode($0) }
    }

    private static func fetch(_ db: SQLiteConnection, badge hash: [UInt8]) throws -> StoredUser? {
        try db.row("\(selection) WHERE badge_hash = ?", hash) { try decode($0) }
    }

    /// The key of the badges' hashes; `nil` if no user ever had a badge.
    private static func badgeKey(_ db: SQLiteConnection) throws -> [UInt8]? {
        let key: [UInt8]? = try db.value("SELECT badge_key FROM directory WHERE id = 1")
        return key?.count == KeyedHash.keySize ? key : nil
    }

    private static func makeBadgeKey(_ db: SQLiteConnection) throws -> [UInt8] {
        _ = try tenantIdentifier(db)
        let key = KeyedHash.makeKey()
        try db.run("UPDATE directory SET badge_key = ? WHERE id = 1", key)
        return key
    }

    private static func hash(of number: Secret, key: [UInt8]) -> [UInt8] {
        number.withBytes { KeyedHash.sha256(of: $0, key: key) }
    }

    private static func decode(_ row: borrowing SQLiteRow) throws -> StoredUser {
        let badge: [UInt8]? = row["badge_hash"]
        let pin: String? = row["pin_hash"]
        guard let identifier: String = row["identifier"], let username: String = row["username"],
            let hash: String = row["password_hash"], let isDisabled: Bool = row["disabled"],
            let seconds: Int64 = row["created_at"], let role: UserRole = row["role"],
            let groups: String = row["member_of"]
        else { throw StoreError.damaged(attempted: "read a user", message: "a user's row is incomplete or invalid") }
        let user = DirectoryUser(
            account: Account(identifier: identifier, username: username, displayName: row["display_name"]),
            role: role,
            groups: groups.split(separator: "\n").map(String.init),
            isDisabled: isDisabled,
            createdAt: Date(timeIntervalSince1970: Double(seconds)),
            hasPIN: pin != nil,
            hasBadge: badge != nil
        )
        return (user, hash, pin)
    }

    /// This directory's tenant. Created on first use.
    public static func tenantIdentifier(_ db: SQLiteConnection) throws -> String {
        if let stored: String = try db.value("SELECT tenant_identifier FROM directory WHERE id = 1") { return stored }
        let made = makeUUID()
        try db.run("INSERT INTO directory (id, tenant_identifier) VALUES (1, ?)", made)
        return made
    }

    private static func makeUUID() -> String { UUID().uuidString.lowercased() }

    private static func update(
        _ db: SQLiteConnection,
        _ username: String,
        _ column: String,
        _ value: some SQLiteBindable
    ) throws {
        try db.run("UPDATE user SET \(column) = ? WHERE username_key = ?", value, usernameKey(username))
        guard db.changedRows == 1 else { throw UserDirectoryError.unknownUser(username) }
    }
}

// MARK: - Checks and errors

extension UserDirectory {
    /// Returns the name as the person writes it, in Unicode's composed form.
    ///
    /// - Throws: `invalidUsername` if the name is empty, too long, or contains spaces or invisible characters.
    static func checked(_ username: String) throws(UserDirectoryError) -> String {
        let name = username.composed
        guard !name.isEmpty else { throw .invalidUsername(name, "it is empty") }
        guard name.utf8.count <= longestUsername else {
            let beginning = "\(name.prefix(16).debugDescription)…"
            throw .invalidUsername(beginning, "it is longer than \(longestUsername) bytes")
        }
        guard !name.unicodeScalars.contains(where: { $0.isInvisible || $0.properties.isWhitespace }) else {
            throw .invalidUsername(name.debugDescription, "it has spaces or invisible characters")
        }
        return name
    }

    private static func checkDisplayName(_ name: String) throws(UserDirectoryError) {
        guard !name.isEmpty, name.utf8.count <= 256, !name.unicodeScalars.contains(where: \.isInvisible) else {
            let problem = "the display name is longer than 256 bytes or has invisible characters"
            throw UserDirectoryError(.invalidDisplayName, "\(problem); choose another one")
        }
    }

    /// Allows only characters that are visible in an account identifier and valid in it.
    private static func checkTenant(_ tenant: String) throws(UserDirectoryError) {
        let isFine = tenant.utf8.allSatisfy { byte in
            let character = Character(UnicodeScalar(byte))
            return byte < 0x80 && (character.isLetter || character.isNumber || "-._".contains(character))
        }
        guard !tenant.isEmpty, tenant.utf8.count <= 256, isFine else {
            let rule = "a tenant is named with up to 256 letters, digits, dots, hyphens and underscores of ASCII"
            throw UserDirectoryError(.invalidTenant, "\(rule); choose such a name")
        }
    }

    /// Allows only names that a managed configuration can have in `allowedUsers`.
    private static func checkGroup(_ name: String) throws(UserDirectoryError) {
        guard (1...PersonGroups.longestName).contains(name.utf8.count),
            !name.unicodeScalars.contains(where: \.isInvisible), name.first?.isWhitespace == false,
            name.last?.isWhitespace == false
        else {
            let rule = "1 to \(PersonGroups.longestName) bytes, without invisible characters and blanks around it"
            let problem = "a group cannot have the name “\(name.printable(64))”"
            throw UserDirectoryError(.invalidGroups, "\(problem); choose one of \(rule)")
        }
    }

    private func makeHash(_ password: Secret, for username: String) throws(UserDirectoryError) -> PasswordHash {
        guard password.count > 0 else { throw .weakPassword("is empty") }
        guard password.codePointCount >= Self.minimumPasswordLength else { throw .weakPassword("is too short") }
        guard !password.isEqual(to: Secret(username)) else { throw .weakPassword("is the user's name") }
        return try makeHash(password)
    }

    private func makeHash(_ secret: Secret) throws(UserDirectoryError) -> PasswordHash {
        do {
            return try PasswordHash(hashing: secret, cost: passwordCost)
        } catch {
            throw UserDirectoryError(.unusablePassword, error.description)
        }
    }

    private func read<Value: Sendable>(
        _ attempted: String,
        _ body: (SQLiteConnection) throws -> Value
    ) throws(UserDirectoryError) -> Value {
        do {
            return try database.read(attempted, body)
        } catch {
            throw .storeFailed(error)
        }
    }

    private func write<Value: Sendable>(
        _ attempted: String,
        _ body: (SQLiteConnection) throws -> Value
    ) throws(UserDirectoryError) -> Value {
        do {
            return try database.write(attempted, body)
        } catch let error as UserDirectoryError {
            throw error
        } catch {
            throw .storeFailed(StoreError(error, attempted: attempted, path: database.path))
        }
    }
}

public enum UserRole: String, Sendable, CaseIterable {
    /// May sign in.
    case user
    /// May sign in, join the device to the organisation, and make it leave.
    case administrator
}

public struct DirectoryUser: Sendable {
    public let account: Account
    public let role: UserRole
    /// The names of the user's groups, sorted.
    public let groups: [String]
    /// Whether sign-ins are refused at the moment.
    public let isDisabled: Bool
    /// When the user was added, to the second.
    public let createdAt: Date
    public var hasPIN = false
    public var hasBadge = false
}
