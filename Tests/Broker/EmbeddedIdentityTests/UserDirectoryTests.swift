import DeviceStorage
import Foundation
import Identity
import NotifyCenterTestKit
import SharedDevice
import Testing

@testable import EmbeddedIdentity

@Suite("User directory")
struct UserDirectoryTests {
    private let temporary: TemporaryDirectory
    private let directory: UserDirectory

    init() throws {
        temporary = try TemporaryDirectory()
        directory = try temporary.users()
    }

    private let password = Secret("correct horse")

    private func code(_ body: () throws -> some Any) -> UserDirectoryError.Code? {
        do {
            _ = try body()
            return nil
        } catch {
            return (error as? UserDirectoryError)?.code
        }
    }

    @Test("an added user is found with all fields by name or identifier, ignoring case")
    func add() throws {
        let date = Date(timeIntervalSince1970: 1_800_000_000)
        let added = try directory.add(username: "Ada@Example.com", displayName: "Ada", password: password, at: date)
        let later = try temporary.users()
        for user in [
            added, try later.user(named: "ada@example.COM"),
            try later.user(withIdentifier: added.account.identifier.uppercased()),
        ] {
            // `==` compares only the identifiers of accounts.
            let fields = [user?.account.identifier, user?.account.username, user?.account.displayName]
            #expect(fields == [added.account.identifier, "Ada@Example.com", "Ada"])
            #expect(user?.isDisabled == false && user?.createdAt == date)
        }
        #expect(try directory.isPassword("correct horse", of: "ada@example.com"))
        #expect(try !directory.isPassword("wrong horse", of: "ada@example.com"))
    }

    @Test("identifiers are two lower-case UUIDs; users of a directory share a tenant")
    func identifiers() throws {
        let accounts = try ["ada", "grace"].map { try directory.add(username: $0, password: password).account }
        let uuid = /[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/
        for account in accounts {
            let parts = account.identifier.split(separator: ".")
            #expect(parts.count == 2)
            for part in parts { #expect(part.wholeMatch(of: uuid) != nil, "\(part)") }
        }
        #expect(accounts[0].identifier != accounts[1].identifier)
        #expect(accounts[0].tenantIdentifier == accounts[1].tenantIdentifier)
        let later = try temporary.users()
        let third = try later.add(username: "joan", password: password).account
        #expect(third.tenantIdentifier == accounts[0].tenantIdentifier)
    }

    @Test("a username is unique, ignoring case and Unicode composition")
    func uniqueness() throws {
        try directory.add(username: "Zo\u{E9}", password: password)
        for name in ["Zo\u{E9}", "zo\u{E9}", "ZO\u{C9}", "Zoe\u{301}"] {
            #expect(code { try directory.add(username: name, password: password) } == .usernameTaken)
            #expect(code { try directory.checkIsFree(username: name) } == .usernameTaken)
        }
        #expect(try directory.users().count == 1)
        try directory.add(username: "Zoe", password: password)
    }

    @Test("invalid names and passwords that crypt would truncate are refused")
    func invalid() throws {
        // A username must not be empty, too long, or have spaces or invisible characters.
        for name in [
            "", " ", "ada lovelace", "ada\n", "ada\u{200B}", "\u{1B}[2Jada", String(repeating: "a", count: 257),
        ] {
            #expect(code { try directory.add(username: name, password: password) } == .invalidUsername, "\(name)")
        }
        // A display name must not be empty or control the terminal.
        for name in ["", "A\u{1B}[2J", "A\u{202E}B"] {
            let code = code { try directory.add(username: "ada", displayName: name, password: password) }
            #expect(code == .invalidDisplayName, "\(name)")
        }
        for text in ["correct\0horse", String(repeating: "x", count: 512)] {
            #expect(code { try directory.add(username: "ada", password: Secret(text)) } == .unusablePassword)
        }
        #expect(try directory.users().isEmpty)
    }

    @Test("weak passwords are refused for new users and for changes")
    func weakPasswords() throws {
        let (name, weak) = ("ada@example.com", ["", "seven c", "äääääää", "ada@example.com"])
        let codes = weak.map { text in code { try directory.add(username: name, password: Secret(text)) } }
        try directory.add(username: name, password: password)
        let laterCodes = weak.map { text in code { try directory.setPassword(Secret(text), ofUserNamed: name) } }
        let all = codes + laterCodes
        #expect(all == Array(repeating: .weakPassword, count: 8))
        #expect(try directory.isPassword("correct horse", of: name))
    }

    @Test("a changed password replaces the old one, whose hash is erased from the file")
    func setPassword() throws {
        try directory.add(username: "ada", password: password)
        let old = try #require(try directory.credentials(ofUserNamed: "ada")).passwordHash
        #expect(try temporary.contains(old), "the test would see no erasure")
        try directory.setPassword(Secret("battery staple"), ofUserNamed: "ADA")
        let matches = try ["battery staple", "correct horse"].map { try directory.isPassword($0, of: "ada") }
        #expect(matches == [true, false])
        try temporary.expectNone(of: old)
    }

    @Test("a badge belongs to one user, and a PIN to any number of users")
    func badges() throws {
        for name in ["ada", "grace"] { try directory.add(username: name, password: password) }
        #expect(try !directory.hasBadges())
        try directory.setBadge(Secret("0041"), ofUserNamed: "ADA")
        try directory.setBadge(Secret("0041"), ofUserNamed: "ada")
        #expect(try !directory.hasBadges(), "a badge without a PIN signs no user in")
        #expect(code { try directory.setBadge(Secret("0041"), ofUserNamed: "grace") } == .badgeTaken)
        for name in ["ada", "grace"] { try directory.setPIN(Secret("1234"), ofUserNamed: name) }
        #expect(try temporary.users().users().map(\.hasBadge) == [true, false])
        #expect(try directory.users().map(\.hasPIN) == [true, true])
        #expect(try directory.hasBadges())
        try directory.setDisabled(true, forUserNamed: "ada")
        #expect(try !directory.hasBadges())
        try directory.setBadge(nil, ofUserNamed: "ada")
        try directory.setBadge(Secret("0041"), ofUserNamed: "grace")
        #expect(try directory.users().map(\.hasBadge) == [false, true])
        try directory.remove(username: "grace")
        try directory.setBadge(Secret("0041"), ofUserNamed: "ada")
    }

    @Test("a badge or PIN of another form, and one of an unknown user, is refused")
    func invalidBadges() throws {
        try directory.add(username: "ada", password: password)
        for number in ["", "041", "0041\r", "0041\0", "bädge", String(repeating: "0", count: 129)] {
            #expect(code { try directory.setBadge(Secret(number), ofUserNamed: "ada") } == .invalidBadge)
        }
        for pin in ["", "123", "12345a", "1234 ", "1234567890123", "١٢٣٤"] {
            #expect(code { try directory.setPIN(Secret(pin), ofUserNamed: "ada") } == .invalidPIN)
        }
        #expect(code { try directory.setBadge(Secret("0041"), ofUserNamed: "grace") } == .unknownUser)
        #expect(code { try directory.setPIN(Secret("1234"), ofUserNamed: "grace") } == .unknownUser)
        #expect(try directory.users().map { [$0.hasBadge, $0.hasPIN] } == [[false, false]])
    }

    @Test("the file never has a badge's number, and no hash of a removed badge or PIN")
    func erasedBadges() throws {
        try directory.add(username: "ada", password: password)
        try directory.setBadge(Secret("badge-0041-of-ada"), ofUserNamed: "ada")
        try directory.setPIN(Secret("271828182845"), ofUserNamed: "ada")
        let pin = try #require(try directory.candidate(for: .pin(username: "ada", Secret("")))?.hash)
        let badge: [UInt8]? = try directory.database.read("look") { try $0.value("SELECT badge_hash FROM user") }
        let hash = try #require(badge)
        #expect(try temporary.contains(pin) && temporary.databaseContains(hash), "the test would see no erasure")
        try temporary.expectNone(of: "badge-0041-of-ada")
        try directory.setPIN(nil, ofUserNamed: "ada")
        try directory.setBadge(nil, ofUserNamed: "ada")
        try temporary.expectNone(of: pin)
        #expect(try !temporary.databaseContains(hash))
    }

    @Test("users are listed by name, and one is disabled and enabled again")
    func disable() throws {
        for name in ["grace", "Ada", "joan"] { try directory.add(username: name, password: password) }
        try directory.setDisabled(true, forUserNamed: "ADA")
        let users = try directory.users()
        #expect(users.map(\.account.username) == ["Ada", "grace", "joan"])
        #expect(users.map(\.isDisabled) == [true, false, false])
        try directory.setDisabled(false, forUserNamed: "ada")
        #expect(try directory.user(named: "ada")?.isDisabled == false)
    }

    @Test("a user's groups are replaced as a whole")
    func groups() throws {
        #expect(try directory.add(username: "ada", password: password).groups.isEmpty)
        try directory.setGroups(["ward 7", "nurses", "nurses"], ofUserNamed: "ADA")
        #expect(try directory.user(named: "ada")?.groups == ["nurses", "ward 7"])
        #expect(try temporary.users().users().map(\.groups) == [["nurses", "ward 7"]])
        try directory.setGroups([], ofUserNamed: "ada")
        #expect(try directory.user(named: "ada")?.groups == [])
    }

    @Test("a group that no configuration can name is refused, and so are too many groups")
    func invalidGroups() throws {
        try directory.add(username: "ada", password: password)
        try directory.setGroups(["nurses"], ofUserNamed: "ada")
        let long = String(repeating: "a", count: 1025)
        let (many, large) = ((0...1000).map { "\($0)" }, (0..<100).map { "\($0)" + long.dropLast(10) })
        for groups in [[""], [" nurses"], ["a\nb"], ["a\u{200B}"], [long], many, large] {
            #expect(code { try directory.setGroups(groups, ofUserNamed: "ada") } == .invalidGroups)
        }
        #expect(try directory.user(named: "ada")?.groups == ["nurses"])
    }

    @Test("an unknown user cannot be changed or removed")
    func unknown() throws {
        try directory.add(username: "ada", password: password)
        let codes = [
            code { try directory.remove(username: "grace") },
            code { try directory.setPassword(password, ofUserNamed: "grace") },
            code { try directory.setDisabled(true, forUserNamed: "grace") },
            code { _ = try directory.existingUser(named: "grace") },
        ]
        #expect(codes == Array(repeating: .unknownUser, count: 4))
        #expect(try directory.user(named: "grace") == nil)
        #expect(try directory.user(withIdentifier: "nobody.here") == nil)
    }

    @Test("removed users leave no bytes in the file")
    func removal() throws {
        for number in 0..<120 {
            let name = "\(number.isMultiple(of: 3) ? "leaving" : "staying")-\(number)@example.com"
            try directory.add(username: name, displayName: name + " in full", password: password)
        }
        #expect(try temporary.contains("leaving-"), "the test would see no erasure")
        for user in try directory.users() where user.account.username.hasPrefix("leaving") {
            #expect(try directory.remove(username: user.account.username).account == user.account)
        }
        #expect(try directory.users().count == 80)
        try temporary.expectNone(of: "leaving-")
        #expect(directory.database.remnants == nil)
    }

    @Test("a user who is signed in cannot be removed")
    func removalOfSignedIn() throws {
        let account = try directory.add(username: "ada", password: password).account
        let columns = "account_identifier = '\(account.identifier)', account_username = 'ada'"
        try directory.execute("UPDATE device SET mode = 'shared', \(columns)")
        #expect(code { try directory.remove(username: "ada") } == .signedIn)
        #expect(try directory.user(named: "ada") != nil)
        try directory.execute("UPDATE device SET account_identifier = NULL, account_username = NULL")
        try directory.remove(username: "ada")
        #expect(try directory.users().isEmpty)
    }

    @Test("a malformed row of a user is an error, not a trap")
    func senselessRow() throws {
        try directory.add(username: "ada", password: password)
        try directory.execute("UPDATE user SET created_at = x'00', password_hash = x'FF'")
        let error = #expect(throws: UserDirectoryError.self) { try directory.users() }
        #expect(error?.storeError?.code == .damaged)
    }
}
