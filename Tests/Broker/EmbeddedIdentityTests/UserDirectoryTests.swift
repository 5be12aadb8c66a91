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
        } catch { return (error as? UserDirectoryError)?.code }
    }

    /// Expects that the directory refuses each of these values with this error.
    private func expectRefused<Value>(
        _ values: [Value],
        _ expected: UserDirectoryError.Code,
        sourceLocation: SourceLocation = #_sourceLocation,
        _ body: (Value) throws -> some Any
    ) {
        for value in values {
            let code = code { try body(value) }
            #expect(code == expected, "\(value)", sourceLocation: sourceLocation)
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

    @Test("invalid names, weak passwords and those that crypt would truncate are refused")
    func invalid() throws {
        let (name, long) = ("ada@example.com", String(repeating: "a", count: 257))
        // A username must not be empty, too long, or have spaces or invisible characters.
        let names = ["", " ", "ada lovelace", "ada\n", "ada\u{200B}", "\u{1B}[2Jada", long]
        expectRefused(names, .invalidUsername) { try directory.add(username: $0, password: password) }
        // A display name must not be empty or control the terminal.
        expectRefused(["", "A\u{1B}[2J", "A\u{202E}B"], .invalidDisplayName) {
            try directory.add(username: name, displayName: $0, password: password)
        }
        let weak = ["", "seven c", "äääääää", name]
        let unusable = ["correct\0horse", String(repeating: "x", count: 512)]
        for (texts, code) in [(weak, UserDirectoryError.Code.weakPassword), (unusable, .unusablePassword)] {
            expectRefused(texts, code) { try directory.add(username: name, password: Secret($0)) }
        }
        #expect(try directory.users().isEmpty)
        try directory.add(username: name, password: password)
        expectRefused(weak, .weakPassword) { try directory.setPassword(Secret($0), ofUserNamed: name) }
        #expect(try directory.isPassword("correct horse", of: name))
    }

    @Test("the file has no badge number, and no hash of a replaced password, badge or PIN")
    func erasure() throws {
        try directory.add(username: "ada", password: password)
        let old = try #require(try directory.candidate(for: .password(username: "ada", nil))?.hash)
        #expect(try temporary.contains(old), "the test would see no erasure")
        try directory.setPassword(Secret("battery staple"), ofUserNamed: "ADA")
        let matches = try ["battery staple", "correct horse"].map { try directory.isPassword($0, of: "ada") }
        #expect(matches == [true, false])
        try temporary.expectNone(of: old)
        try directory.setBadge(Secret("badge-0041-of-ada"), ofUserNamed: "ada")
        try directory.setPIN(Secret("271828182845"), ofUserNamed: "ada")
        let pin = try #require(try directory.candidate(for: .pin(username: "ada", Secret("")))?.hash)
        let badge: [UInt8]? = try directory.database.read("look") { try $0.value("SELECT badge_hash FROM user") }
        let hash = try #require(badge)
        #expect(try temporary.contains(pin) && temporary.contains(hash), "the test would see no erasure")
        try temporary.expectNone(of: "badge-0041-of-ada")
        try directory.setPIN(nil, ofUserNamed: "ada")
        try directory.setBadge(nil, ofUserNamed: "ada")
        try temporary.expectNone(of: pin)
        #expect(try !temporary.contains(hash))
    }

    @Test("a badge belongs to one user, a PIN to any number; other forms are refused")
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
        // A refused value leaves the user without one.
        try directory.setBadge(nil, ofUserNamed: "ada")
        try directory.setPIN(nil, ofUserNamed: "ada")
        let long = String(repeating: "0", count: 129)
        expectRefused(["", "041", "0041\r", "0041\0", "bädge", long], .invalidBadge) {
            try directory.setBadge(Secret($0), ofUserNamed: "ada")
        }
        expectRefused(["", "123", "12345a", "1234 ", "1234567890123", "١٢٣٤"], .invalidPIN) {
            try directory.setPIN(Secret($0), ofUserNamed: "ada")
        }
        #expect(code { try directory.setBadge(Secret("0042"), ofUserNamed: "grace") } == .unknownUser)
        #expect(code { try directory.setPIN(Secret("1234"), ofUserNamed: "grace") } == .unknownUser)
        #expect(try directory.users().map { [$0.hasBadge, $0.hasPIN] } == [[false, false]])
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

    @Test("a user's groups are replaced as a whole, by groups that a configuration can name")
    func groups() throws {
        #expect(try directory.add(username: "ada", password: password).groups.isEmpty)
        try directory.setGroups(["ward 7", "nurses", "nurses"], ofUserNamed: "ADA")
        let long = String(repeating: "a", count: 1025)
        let (many, large) = ((0...1000).map { "\($0)" }, (0..<100).map { "\($0)" + long.dropLast(10) })
        expectRefused([[""], [" nurses"], ["a\nb"], ["a\u{200B}"], [long], many, large], .invalidGroups) {
            try directory.setGroups($0, ofUserNamed: "ada")
        }
        #expect(try directory.user(named: "ada")?.groups == ["nurses", "ward 7"])
        #expect(try temporary.users().users().map(\.groups) == [["nurses", "ward 7"]])
        try directory.setGroups([], ofUserNamed: "ada")
        #expect(try directory.user(named: "ada")?.groups == [])
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

    @Test("removed users leave no bytes in the file, and a signed-in user cannot be removed")
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
        let account = try directory.add(username: "ada", password: password).account
        let columns = "account_identifier = '\(account.identifier)', account_username = 'ada'"
        try directory.execute("UPDATE device SET mode = 'shared', \(columns)")
        #expect(code { try directory.remove(username: "ada") } == .signedIn)
        #expect(try directory.user(named: "ada") != nil)
        try directory.execute("UPDATE device SET account_identifier = NULL, account_username = NULL")
        try directory.remove(username: "ada")
        #expect(try directory.user(named: "ada") == nil)
    }

    @Test("a malformed row of a user is an error, not a trap")
    func senselessRow() throws {
        try directory.add(username: "ada", password: password)
        try directory.execute("UPDATE user SET created_at = x'00', password_hash = x'FF'")
        let error = #expect(throws: UserDirectoryError.self) { try directory.users() }
        #expect(error?.storeError?.code == .damaged)
    }
}
