import Foundation
import Identity
import Testing

@testable import BrokerCore

@Suite("Token vault")
struct TokenVaultTests {
    private let now = Moment.at(0)

    private func token(_ value: String, endsAfter seconds: Double = 3600) -> AccessToken {
        AccessToken(value: value, scopes: ["a"], expiresAt: now.wall.addingTimeInterval(seconds))
    }

    @Test("the newest token goes to its app for its exact scopes, until the session ends")
    func lookup() {
        var vault = TokenVault()
        for name in ["old", "new"] { vault.store(token(name), for: "a", scopes: ["a", "b"], at: now) }
        #expect(vault.token(for: "a", scopes: ["b", "a"], at: now)?.value == "new" && vault.count == 1)
        let others: [(Participant, Set<String>)] = [
            ("a", ["a"]), ("b", ["a", "b"]), (Participant(app: "a", user: 7), ["a", "b"]),
        ]
        #expect(others.allSatisfy { vault.token(for: $0, scopes: $1, at: now) == nil })
        vault.store(token("t"), for: "a", scopes: ["a"], at: now)
        vault.keepCommon(token("common"))
        vault.drop()
        let tokens = [vault.token(for: "a", scopes: ["a"], at: now), vault.common(at: now)]
        #expect(vault.count == 0 && tokens == [nil, nil])
    }

    // S15
    @Test("a token is handed out again for two seconds, unless it expires within a minute")
    func freshness() {
        var vault = TokenVault()
        vault.store(token("t"), for: "a", scopes: ["a"], at: now)
        // The monotonic clock counts.
        var jumped = Moment.at(1.5)
        jumped.wall += 1000
        let isFresh = [.at(1.5), .at(2.5), jumped].map { vault.token(for: "a", scopes: ["a"], at: $0) != nil }
        #expect(isFresh == [true, false, true])
        vault = TokenVault()
        vault.store(token("t", endsAfter: 100), for: "a", scopes: ["a"], at: now)
        func isThere(after seconds: Double) -> Bool {
            // The monotonic clock says that the token was stored just now.
            let later = Moment(wall: Moment.at(seconds).wall, uptime: now.uptime)
            return vault.token(for: "a", scopes: ["a"], at: later) != nil
        }
        #expect(isThere(after: 39) && !isThere(after: 40) && !isThere(after: 100))
        #expect(!isThere(after: 10_000))
    }

    @Test("at capacity a user's first token to expire is dropped, and no other user's")
    func capacity() {
        var vault = TokenVault()
        let other = Participant(app: "a", user: 7)
        vault.store(token("other", endsAfter: 1000), for: other, scopes: ["0"], at: now)
        for number in 0..<240 {
            vault.store(token("\(number)", endsAfter: 3600 + Double(number)), for: "a", scopes: ["\(number)"], at: now)
        }
        #expect(vault.count == TokenVault.capacity + 1)
        let isThere = ["239", "40", "39"].map { vault.token(for: "a", scopes: [$0], at: now) != nil }
        #expect(isThere == [true, true, false] && vault.token(for: other, scopes: ["0"], at: now) != nil)
    }
}
