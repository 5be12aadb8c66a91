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
    /// - Throws: `UserDirectoryError`: `usernameTaken`, `invalidUsername`, `invalidDisplayName`, `invalidTenant`,
    ///   `weakPassword`, `unusablePassword`, `storeFailed`.
    @discardableResult
    public func add(
        username: String,
        displayName: String? = nil,
        password: Secret,
        role: UserRole = .user,
        tenant: String? = nil,
        at date: Date = Date()
    ) throws(UserDirectoryError) -> DirectoryUser {
        let name = try Username(username)
        if let displayName { try Self.checkDisplayName(displayName) }
        if let tenant { try Self.checkTenant(tenant) }
        try checkIsFree(username: name.text)
        let hash = try makeHash(password, for: name.text)
        return try write("add user \(name.text)") { db in
            guard try Self.fetch(db, username: name.text) == nil else {
                throw UserDirectoryError.usernameTaken(name.text)
            }
            let identifier = Self.makeUUID() + "." + (try tenant?.lowercased() ?? Self.tenantIdentifier(db))
            let seconds = Int64(date.timeIntervalSince1970)
            try db.run(
                """
                INSERT INTO user (identifier, username, username_key, display_name, password_hash, created_at, role)
                VALUES (?, ?, ?, ?, ?, ?, ?)
                """,
                identifier,
                name.text,
                name.key,
                displayName,
                hash.text,
                seconds,
                role.rawValue
            )
            return DirectoryUser(
                account: Account(identifier: identifier, username: name.text, displayName: displayName),
                role: role,
                groups: [],
                isDisabled: false,
                createdAt: Date(timeIntervalSince1970: Double(seconds))
            )
        }
    }

    /// Checks that a user with this name can be added, before a password is requested.
    ///
    /// - Throws: `UserDirectoryError`: `usernameTaken`, `invalidUsername`, `storeFailed`.
    public func checkIsFree(username: String) throws(UserDirectoryError) {
        let name = try Username(username)
        guard try user(named: name.text) == nil else { throw .usernameTaken(name.text) }
    }

    /// Removes a user, and erases the user's data from the file; see `DeviceDatabase.remnants`.
    ///
    /// - Returns: The removed user.
    /// - Throws: `UserDirectoryError`: `unknownUser`; `signedIn` if the user is the device's account: it has to be
    ///   signed out first, so that the device does not stay signed in as a removed user; `storeFailed`.
    @discardableResult
    public func remove(username: String) throws(UserDirectoryError) -> DirectoryUser {
        let removed = try write("remove user \(username)") { db in
            guard let (user, _) = try Self.fetch(db, username: username) else {
                throw UserDirectoryError.unknownUser(username)
            }
            let identifier = user.account.identifier.lowercased()
            let signedIn = "SELECT EXISTS (SELECT 1 FROM device WHERE lower(account_identifier) = ?)"
            if try db.value(signedIn, identifier) == true { throw UserDirectoryError.signedIn(user.account.username) }
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
    ///
    /// - Throws: `UserDirectoryError`: `storeFailed`.
    public func users() throws(UserDirectoryError) -> [DirectoryUser] {
        try read("list the users") { db in
            try db.rows("\(Self.selection) ORDER BY username_key") { try Self.decode($0).user }
        }
    }

    /// The user of this name, ignoring case; `nil` if there is none.
    ///
    /// - Throws: `UserDirectoryError`: `storeFailed`.
    public func user(named username: String) throws(UserDirectoryError) -> DirectoryUser? {
        try credentials(ofUserNamed: username)?.user
    }

    /// The user of this name, ignoring case.
    ///
    /// - Throws: `UserDirectoryError`: `unknownUser`, `storeFailed`.
    public func existingUser(named username: String) throws(UserDirectoryError) -> DirectoryUser {
        guard let user = try user(named: username) else { throw .unknownUser(username) }
        return user
    }

    /// The user with this account identifier, ignoring case; `nil` if there is none.
    ///
    /// - Throws: `UserDirectoryError`: `storeFailed`.
    public func user(withIdentifier identifier: String) throws(UserDirectoryError) -> DirectoryUser? {
        try read("look up a user") { db in
            try db.row("\(Self.selection) WHERE identifier = ?", identifier.lowercased()) { try Self.decode($0).user }
        }
    }

    /// Changes the user's password.
    ///
    /// - Throws: `UserDirectoryError`: `unknownUser`, `weakPassword`, `unusablePassword`, `storeFailed`.
    public func setPassword(_ password: Secret, ofUserNamed username: String) throws(UserDirectoryError) {
        let user = try existingUser(named: username)
        let hash = try makeHash(password, for: user.account.username)
        try update(username, "set the password of user \(username)", "password_hash = ?", hash.text)
        // The old hash could be attacked offline, and the old password may be in use elsewhere.
        database.eraseRemnants()
    }

    /// Changes the user's PIN, or removes it.
    ///
    /// - Throws: `UserDirectoryError`: `unknownUser`, `invalidPIN`, `unusablePassword`, `storeFailed`.
    public func setPIN(_ pin: Secret?, ofUserNamed username: String) throws(UserDirectoryError) {
        _ = try existingUser(named: username)
        if let pin, !pin.isPIN { throw .invalidPIN }
        let hash = try pin.map { pin throws(UserDirectoryError) in try makeHash(pin) }
        try update(username, "set the PIN of user \(username)", "pin_hash = ?", hash?.text)
        database.eraseRemnants()
    }

    /// Gives the user another badge, or removes it. The database has a keyed hash of the number (HMAC-SHA-256).
    ///
    /// - Throws: `UserDirectoryError`: `unknownUser`, `invalidBadge`, `badgeTaken`, `storeFailed`.
    public func setBadge(_ number: Secret?, ofUserNamed username: String) throws(UserDirectoryError) {
        if let number, !number.isBadgeNumber { throw .invalidBadge }
        let attempted = "set the badge of user \(username)"
        try write(attempted) { db in
            let hash = try number.map { Self.hash(of: $0, key: try Self.badgeKey(db) ?? Self.makeBadgeKey(db)) }
            let owner = try hash.flatMap { try Self.fetch(db, badge: $0)?.user.account.username }
            if let owner, usernameKey(owner) != usernameKey(username) { throw UserDirectoryError.badgeTaken(owner) }
            try Self.update(db, username, "badge_hash = ?", hash)
        }
        // The number of a short badge can be tried out against its hash.
        database.eraseRemnants()
    }

    /// Whether a user can sign in with a badge.
    ///
    /// - Throws: `UserDirectoryError`: `storeFailed`.
    public func hasBadges() throws(UserDirectoryError) -> Bool {
        try read("look for badges") { db in
            try db.value(
                "SELECT EXISTS (SELECT 1 FROM user WHERE badge_hash IS NOT NULL AND pin_hash IS NOT NULL AND NOT disabled)"
            ) == true
        }
    }

    /// Enables or disables sign-ins of the user. An account that is signed in stays signed in, but gets no new tokens.
    ///
    /// - Throws: `UserDirectoryError`: `unknownUser`, `storeFailed`.
    public func setDisabled(_ isDisabled: Bool, forUserNamed username: String) throws(UserDirectoryError) {
        let attempted = "\(isDisabled ? "disable" : "enable") user \(username)"
        try update(username, attempted, "disabled = ?", isDisabled)
    }

    /// Changes the user's role.
    ///
    /// - Throws: `UserDirectoryError`: `unknownUser`, `storeFailed`.
    public func setRole(_ role: UserRole, ofUserNamed username: String) throws(UserDirectoryError) {
        try update(username, "set the role of user \(username)", "role = ?", role.rawValue)
    }

    /// Replaces the user's groups. They count from the user's next sign-in on.
    ///
    /// - Throws: `UserDirectoryError`: `unknownUser`, `invalidGroups`, `storeFailed`.
    public func setGroups(_ groups: [String], ofUserNamed username: String) throws(UserDirectoryError) {
        for group in groups { try Self.checkGroup(group) }
        guard case .known(let names) = PersonGroups(listed: groups) else { throw .tooManyGroups }
        let text = names.sorted().joined(separator: "\n")
        try update(username, "set the groups of user \(username)", "member_of = ?", text)
    }

    /// The user of this name, with the stored password hash.
    public func credentials(
        ofUserNamed username: String
    ) throws(UserDirectoryError) -> (user: DirectoryUser, passwordHash: String)? {
        try read("look up a user") { try Self.fetch($0, username: username).map { ($0.user, $0.hashes.password) } }
    }

    /// The user who would be signed in, with the hash that the password or PIN has to match. The hash is `nil` if the
    /// user has no PIN.
    func candidate(for request: SignInRequest) throws(UserDirectoryError) -> (user: DirectoryUser, hash: String?)? {
        try read("look up a user") { db in
            switch request {
            case .password(let username, _):
                try Self.fetch(db, username: username).map { ($0.user, $0.hashes.password) }
            case .pin(let username, _): try Self.fetch(db, username: username).map { ($0.user, $0.hashes.pin) }
            case .badge(let number, _):
                try Self.badgeKey(db).flatMap { key in
                    try Self.fetch(db, badge: Self.hash(of: number, key: key)).map { ($0.user, $0.hashes.pin) }
                }
            }
        }
    }
}

// MARK: - Rows

extension UserDirectory {
    /// The hashes of a user's password and PIN. A user without a PIN has no hash of one.
    private typealias Hashes = (password: String, pin: String?)

    private static let selection =
        """
        SELECT identifier, username, display_name, password_hash, disabled, created_at, role, member_of, pin_hash,
            badge_hash
        FROM user
        """

    private static func fetch(
        _ db: SQLiteConnection,
        username: String
    ) throws -> (user: DirectoryUser, hashes: Hashes)? {
        try db.row("\(selection) WHERE username_key = ?", usernameKey(username)) { try decode($0) }
    }

    private static func fetch(
        _ db: SQLiteConnection,
        badge hash: [UInt8]
    ) throws -> (user: DirectoryUser, hashes: Hashes)? {
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

    private static func decode(_ row: borrowing SQLiteRow) throws -> (user: DirectoryUser, hashes: Hashes) {
        let badge: [UInt8]? = row["badge_hash"]
        let pin: String? = row["pin_hash"]
        let role: String? = row["role"]
        guard let identifier: String = row["identifier"], let username: String = row["username"],
            let hash: String = row["password_hash"], let isDisabled: Bool = row["disabled"],
            let seconds: Int64 = row["created_at"], let role = role.flatMap(UserRole.init),
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
        return (user, (hash, pin))
    }

    /// This directory's tenant. Created on first use.
    public static func tenantIdentifier(_ db: SQLiteConnection) throws -> String {
        if let stored: String = try db.value("SELECT tenant_identifier FROM directory WHERE id = 1") { return stored }
        let made = makeUUID()
        try db.run("INSERT INTO directory (id, tenant_identifier) VALUES (1, ?)", made)
        return made
    }

    private static func makeUUID() -> String { UUID().uuidString.lowercased() }

    private func update(
        _ username: String,
        _ attempted: String,
        _ assignment: String,
        _ value: some SQLiteBindable
    ) throws(UserDirectoryError) {
        try write(attempted) { db in try Self.update(db, username, assignment, value) }
    }

    private static func update(
        _ db: SQLiteConnection,
        _ username: String,
        _ assignment: String,
        _ value: some SQLiteBindable
    ) throws {
        try db.run("UPDATE user SET \(assignment) WHERE username_key = ?", value, usernameKey(username))
        guard db.changedRows == 1 else { throw UserDirectoryError.unknownUser(username) }
    }
}

// MARK: - Checks and errors

extension UserDirectory {
    private static func checkDisplayName(_ name: String) throws(UserDirectoryError) {
        guard !name.isEmpty, name.utf8.count <= 256, !name.unicodeScalars.contains(where: \.isInvisible) else {
            throw .invalidDisplayName
        }
    }

    /// Allows only characters that are visible in an account identifier and valid in it.
    private static func checkTenant(_ tenant: String) throws(UserDirectoryError) {
        let isFine = tenant.utf8.allSatisfy { byte in
            let character = Character(UnicodeScalar(byte))
            return byte < 0x80 && (character.isLetter || character.isNumber || "-._".contains(character))
        }
        guard !tenant.isEmpty, tenant.utf8.count <= 256, isFine else { throw .invalidTenant }
    }

    /// Allows only names that a managed configuration can have in `allowedUsers`.
    private static func checkGroup(_ name: String) throws(UserDirectoryError) {
        guard (1...PersonGroups.longestName).contains(name.utf8.count),
            !name.unicodeScalars.contains(where: \.isInvisible), name.first?.isWhitespace == false,
            name.last?.isWhitespace == false
        else { throw .invalidGroup(name) }
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
            throw .unusablePassword(error)
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
