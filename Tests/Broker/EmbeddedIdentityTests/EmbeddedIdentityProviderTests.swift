import Foundation
import Identity
import NotifyCenterTestKit
import SharedDevice
import Testing

@testable import EmbeddedIdentity

@Suite("Embedded identity provider")
struct EmbeddedIdentityProviderTests {
    private static let now = Date(timeIntervalSince1970: 1_800_000_000)

    private let temporary: TemporaryDirectory
    private let directory: UserDirectory
    private let provider: EmbeddedIdentityProvider
    private let ada: Account

    init() throws {
        temporary = try TemporaryDirectory()
        directory = try temporary.users()
        ada = try directory.add(username: "ada@example.com", displayName: "Ada", password: Secret("correct horse"))
            .account
        provider = try EmbeddedIdentityProvider(directory: directory, date: { Self.now })
    }

    private func signIn(_ request: SignInRequest) async -> Result<Account, IdentityError> {
        do throws(IdentityError) {
            return .success(try await provider.authenticate(request).account)
        } catch {
            return .failure(error)
        }
    }

    private func signIn(_ username: String, _ password: String?) async -> Result<Account, IdentityError> {
        await signIn(SignInRequest(username: username, password: password.map { Secret($0) }))
    }

    private func code(_ result: Result<Account, IdentityError>) -> IdentityError.Code? {
        if case .failure(let error) = result { error.code } else { nil }
    }

    @Test("the right password returns the account and its groups, in any case of the name")
    func rightPassword() async throws {
        let account = try await signIn("ADA@example.com", "correct horse").get()
        #expect(account == ada && account.username == "ada@example.com" && account.displayName == "Ada")
        let request = SignInRequest(username: "ada@example.com", password: Secret("correct horse"))
        #expect(try await provider.authenticate(request).groups == .none)
        try directory.setGroups(["nurses"], ofUserNamed: "ada@example.com")
        #expect(try await provider.authenticate(request).groups == .known(["nurses"]))
    }

    @Test("a user who is changed or removed during the password check is not signed in")
    func changedMeanwhile() throws {
        func verdict(_ change: () throws -> Void) -> Result<DirectoryUser?, IdentityError> {
            let password = Secret("correct horse")
            let request = SignInRequest(username: ada.username, password: password)
            return provider.check(password, of: request) { _ in try change() }
        }
        func isWrong(_ verdict: Result<DirectoryUser?, IdentityError>) -> Bool {
            if case .success(nil) = verdict { true } else { false }
        }
        for isDisabled in [false, true, false] {
            let unchanged = verdict { try directory.setDisabled(isDisabled, forUserNamed: ada.username) }
            guard case .success(let user?) = unchanged, user.isDisabled == isDisabled else {
                Issue.record("\(unchanged)")
                continue
            }
        }
        let changed = verdict { try directory.setPassword(Secret("battery staple"), ofUserNamed: ada.username) }
        #expect(isWrong(changed))
        try directory.setPassword(Secret("correct horse"), ofUserNamed: ada.username)
        let removed = verdict { try directory.remove(username: ada.username) }
        #expect(isWrong(removed))
    }

    @Test("a wrong password gets the same response for known, unknown and disabled users")
    func sameAnswer() async throws {
        let answers = [
            await signIn("ada@example.com", "wrong horse"), await signIn("nobody@example.com", "wrong horse"),
            await signIn("", "wrong horse"), await signIn("ada@example.com", ""),
            await signIn("ada@example.com", "correct horse\0"),
            await signIn("grace@example.com", String(repeating: "x", count: 600)),
            await signIn(String(repeating: "a", count: 1_000_000), "wrong horse"),
        ]
        #expect(answers == Array(repeating: .failure(.invalidGrant), count: answers.count))
        // Only the right password tells that the user is disabled.
        try directory.setDisabled(true, forUserNamed: ada.username)
        #expect(code(await signIn(ada.username, "wrong horse")) == .invalidGrant)
        #expect(code(await signIn(ada.username, "correct horse")) == .accountDisabled)
        try directory.setDisabled(false, forUserNamed: ada.username)
        #expect(code(await signIn(ada.username, "correct horse")) == nil)
        #expect(code(await signIn(ada.username, nil)) == .interactionRequired, "the password is missing")
    }

    @Test("an unknown user or badge, or a missing PIN, costs the work of a wrong password")
    func sameWork() throws {
        try directory.add(username: "grace@example.com", password: Secret("correct horse"))
        try directory.setBadge(Secret("0042"), ofUserNamed: "grace@example.com")
        try directory.setBadge(Secret("0041"), ofUserNamed: ada.username)
        try directory.setPIN(Secret("1234"), ofUserNamed: ada.username)
        let (password, pin) = (Secret("wrong horse"), Secret("9999"))
        let tries: [(Secret, SignInRequest)] = [
            (password, SignInRequest(username: ada.username, password: password)),
            (password, SignInRequest(username: "nobody@example.com", password: password)),
            (pin, .badge(number: Secret("0041"), pin: pin)), (pin, .badge(number: Secret("0042"), pin: pin)),
            (pin, .badge(number: Secret("0043"), pin: pin)), (pin, .pin(username: ada.username, pin)),
            (pin, .pin(username: "grace@example.com", pin)), (pin, .pin(username: "nobody@example.com", pin)),
        ]
        let hashes = tries.map { secret, request in
            var hashes: [String] = []
            _ = provider.check(secret, of: request) { hashes.append($0.text) }
            return hashes.count == 1 ? hashes[0] : ""
        }
        // The first 14 characters encode the cost.
        for hash in hashes { #expect(hash.prefix(14) == hashes[0].prefix(14) && hash.count == hashes[0].count) }
        #expect(hashes[0] != hashes[1] && hashes[2] != hashes[4])
    }

    @Test("a badge with its owner's PIN returns the account; anything else gets one refusal")
    func badge() async throws {
        func signIn(_ number: String, _ pin: String) async -> Result<Account, IdentityError> {
            await self.signIn(.badge(number: Secret(number), pin: Secret(pin)))
        }
        #expect(await signIn("0041", "1234") == .failure(.invalidBadge), "the directory has no badge")
        try directory.add(username: "grace@example.com", password: Secret("correct horse"))
        try directory.setBadge(Secret("0041"), ofUserNamed: ada.username)
        try directory.setBadge(Secret("0042"), ofUserNamed: "grace@example.com")
        try directory.setPIN(Secret("1234"), ofUserNamed: ada.username)
        #expect(await signIn("0041", "1234") == .success(ada))
        for (number, pin) in [
            ("0041", "1235"), ("0042", "1234"), ("0043", "1234"), ("0041", ""), ("0041", "12 34"), ("", "1234"),
            ("0041\0", "1234"), ("0041", "1234\0"), (String(repeating: "0", count: 129), "1234"),
        ] { #expect(await signIn(number, pin) == .failure(.invalidBadge), "\(number), \(pin)") }
        try directory.setDisabled(true, forUserNamed: ada.username)
        #expect(await signIn("0041", "1234") == .failure(.accountDisabled))
        try directory.setDisabled(false, forUserNamed: ada.username)
        try directory.setBadge(nil, ofUserNamed: ada.username)
        #expect(await signIn("0041", "1234") == .failure(.invalidBadge), "the badge is removed")
    }

    @Test("a PIN returns the account of its user only")
    func pin() async throws {
        func signIn(_ name: String, _ pin: String) async -> Result<Account, IdentityError> {
            await self.signIn(.pin(username: name, Secret(pin)))
        }
        #expect(await signIn(ada.username, "1234") == .failure(.invalidPIN), "the user has no PIN")
        try directory.setPIN(Secret("1234"), ofUserNamed: ada.username)
        #expect(await signIn(ada.username, "1234") == .success(ada))
        #expect(await signIn(ada.username, "1235") == .failure(.invalidPIN))
        #expect(await signIn("nobody@example.com", "1234") == .failure(.invalidPIN))
        #expect(await signIn(ada.username, "correct horse") == .failure(.invalidPIN), "a password is no PIN")
        #expect(await self.signIn(ada.username, "1234") == .failure(.invalidGrant), "a PIN is no password")
        try directory.setPIN(nil, ofUserNamed: ada.username)
        #expect(await signIn(ada.username, "1234") == .failure(.invalidPIN))
    }

    // S1
    @Test("a flood of password checks is limited, and tokens are still issued")
    func flood() async throws {
        let answers = await withTaskGroup(of: IdentityError.Code?.self) { group in
            for _ in 0..<500 { group.addTask { code(await signIn(ada.username, "wrong horse")) } }
            return await group.reduce(into: []) { $0.append($1) }
        }
        #expect(answers.allSatisfy { $0 == .invalidGrant || $0 == .busy })
        #expect(answers.contains(.invalidGrant))
        #expect(try await provider.issueToken(for: ada, scopes: ["a"]).scopes == ["a"])
        #expect(code(await signIn(ada.username, "correct horse")) == nil)
    }

    @Test("a database failure is a provider failure, not a wrong password")
    func providerFailure() async throws {
        try directory.execute("UPDATE user SET password_hash = '*'")
        for _ in 0..<10 { #expect(code(await signIn(ada.username, "correct horse")) == .providerFailed) }
    }

    @Test("a token with an invalid OAuth scope or of a removed or disabled user is refused")
    func refusedTokens() async throws {
        func refusal(_ scope: String = "a") async -> IdentityError.Code? {
            let error = await #expect(throws: IdentityError.self) {
                try await provider.issueToken(for: ada, scopes: ["fine", scope])
            }
            return error?.code
        }
        for scope in ["", "a b", "a\"", "a\\", "ä", "a\n"] {
            #expect(await refusal(scope) == .invalidScope, "\(scope)")
        }
        try directory.setDisabled(true, forUserNamed: ada.username)
        #expect(await refusal() == .accountDisabled)
        try directory.remove(username: ada.username)
        #expect(await refusal() == .accountUnknown)
    }
}
