import Foundation
import SharedDevice
import Testing

@testable import SharedDeviceBroker

@Suite("Token vault")
struct TokenVaultTests {
    private let now = Date(timeIntervalSince1970: 1_800_000_000)

    private func token(_ value: String, endsAfter seconds: Double = 3600) -> AccessToken {
        AccessToken(value: value, scopes: ["a"], expiresAt: now.addingTimeInterval(seconds))
    }

    @Test("a token is handed out for its account and scopes, and for no others")
    func lookup() {
        var vault = TokenVault(epoch: 3)
        let isKept = vault.store(token("t"), for: .ada, scopes: ["a", "b"], epoch: 3, at: now)
        #expect(isKept)
        #expect(vault.token(for: .ada, scopes: ["b", "a"], epoch: 3, at: now)?.value == "t")
        let shouting = Account(identifier: Account.ada.identifier.uppercased(), username: "")
        #expect(vault.token(for: shouting, scopes: ["a", "b"], epoch: 3, at: now)?.value == "t")
        #expect(vault.token(for: .ada, scopes: ["a"], epoch: 3, at: now) == nil)
        #expect(vault.token(for: .grace, scopes: ["a", "b"], epoch: 3, at: now) == nil)
    }

    @Test("a new token replaces the old one")
    func replacement() {
        var vault = TokenVault(epoch: 3)
        _ = vault.store(token("old"), for: .ada, scopes: ["a"], epoch: 3, at: now)
        _ = vault.store(token("new"), for: .ada, scopes: ["a"], epoch: 3, at: now)
        #expect(vault.token(for: .ada, scopes: ["a"], epoch: 3, at: now)?.value == "new")
        #expect(vault.count == 1)
    }

    @Test("another epoch drops every token, and the same epoch none")
    func epochs() {
        var vault = TokenVault(epoch: 3)
        _ = vault.store(token("t"), for: .ada, scopes: ["a"], epoch: 3, at: now)
        vault.enter(epoch: 3)
        #expect(vault.count == 1)
        vault.enter(epoch: 4)
        #expect(vault.count == 0)
        #expect(vault.token(for: .ada, scopes: ["a"], epoch: 4, at: now) == nil)
        vault.enter(epoch: 3)
        #expect(vault.token(for: .ada, scopes: ["a"], epoch: 3, at: now) == nil)
    }

    @Test("a token that was asked for before the sign-out and comes after it is not kept")
    func lateToken() {
        var vault = TokenVault(epoch: 3)
        vault.enter(epoch: 4)
        let isKept = vault.store(token("late"), for: .ada, scopes: ["a"], epoch: 3, at: now)
        #expect(!isKept)
        #expect(vault.count == 0)
    }

    @Test("whoever asks with another epoch gets nothing")
    func otherEpoch() {
        var vault = TokenVault(epoch: 3)
        _ = vault.store(token("t"), for: .ada, scopes: ["a"], epoch: 3, at: now)
        #expect(vault.token(for: .ada, scopes: ["a"], epoch: 2, at: now) == nil)
        #expect(vault.token(for: .ada, scopes: ["a"], epoch: 4, at: now) == nil)
    }

    @Test("a token that has ended, or will before it arrives, is not handed out")
    func expiry() {
        var vault = TokenVault(epoch: 3, margin: 60)
        _ = vault.store(token("t", endsAfter: 100), for: .ada, scopes: ["a"], epoch: 3, at: now)
        func isThere(after seconds: Double) -> Bool {
            vault.token(for: .ada, scopes: ["a"], epoch: 3, at: now.addingTimeInterval(seconds)) != nil
        }
        #expect(isThere(after: 39))
        #expect(!isThere(after: 40))
        #expect(!isThere(after: 100))
        #expect(!isThere(after: 10_000))
    }

    @Test("an app that asks for ever new scopes fills no memory: what ends first makes room")
    func capacity() {
        var vault = TokenVault(epoch: 3, capacity: 10)
        for number in 0..<50 {
            let token = token("\(number)", endsAfter: 3600 + Double(number))
            _ = vault.store(token, for: .ada, scopes: ["\(number)"], epoch: 3, at: now)
        }
        #expect(vault.count == 10)
        #expect(vault.token(for: .ada, scopes: ["49"], epoch: 3, at: now) != nil)
        #expect(vault.token(for: .ada, scopes: ["40"], epoch: 3, at: now) != nil)
        #expect(vault.token(for: .ada, scopes: ["39"], epoch: 3, at: now) == nil)
    }
}
