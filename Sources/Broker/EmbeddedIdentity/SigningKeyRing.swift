import Basics
import Cryptography
import DeviceStorage
import FoundationEssentials

/// The keys of this device's tokens: the current one, and the public halves of retired keys whose tokens may be valid.
/// A key from the future counts as expired: after a clock was set back, it would otherwise sign for too long.
struct SigningKeyRing: Sendable {
    /// How long a key signs, in seconds: 30 days.
    static let service: TimeInterval = 30 * 86_400
    /// How long the public half stays published afterwards, in seconds; 10 minutes are for clocks that differ.
    static let afterlife: TimeInterval = EmbeddedIdentityProvider.tokenLifetime + 600
    /// How far a clock may be set back without an effect, in seconds.
    private static let tolerance: TimeInterval = 600

    struct Current: Sendable {
        let key: SigningKey
        let madeAt: Date
    }

    /// The public half of a key that no longer signs.
    struct Retired: Sendable, Equatable {
        let identifier: String
        let publicKey: JSONValue
        let madeAt: Date
        var retiredAt: Date
    }

    /// `nil` until the first key is created.
    var current: Current?
    /// The latest first.
    var retired: [Retired] = []

    /// Whether the current key still signs; otherwise a new one is due.
    func signs(at now: Date) -> Bool {
        current.map { (-Self.tolerance..<Self.service).contains(now.timeIntervalSince($0.madeAt)) } ?? false
    }

    /// Removes expired keys. Returns whether anything has changed. A retirement in the future, after a clock was set
    /// back, becomes `now`.
    mutating func forget(at now: Date) -> Bool {
        let before = retired
        retired.removeAll { now.timeIntervalSince($0.retiredAt) >= Self.afterlife }
        for index in retired.indices { retired[index].retiredAt = min(retired[index].retiredAt, now) }
        return retired != before
    }

    /// The ring with a new key. The old one is retired, without its secret half.
    func renewed(at now: Date) -> SigningKeyRing {
        var ring = SigningKeyRing(current: Current(key: SigningKey(), madeAt: now), retired: retired)
        if let current {
            let (key, madeAt) = (current.key, current.madeAt)
            let last = Retired(identifier: key.identifier, publicKey: key.publicKey, madeAt: madeAt, retiredAt: now)
            ring.retired.insert(last, at: 0)
        }
        return ring
    }

    /// The public halves, the latest first, as a JWK set (RFC 7517, section 5) that also names the issuer.
    func published(by issuer: String) -> String {
        let keys = [current?.key.publicKey].compactMap { $0 } + retired.map(\.publicKey)
        return JSONValue.object(["issuer": .string(issuer), "keys": .array(keys)]).text
    }
}

// MARK: - In the database

extension SigningKeyRing {
    /// Reads the keys. Returns the keys, and the number of malformed rows, which are ignored.
    static func read(_ db: SQLiteConnection) throws -> (SigningKeyRing, flaws: Int) {
        var (ring, flaws) = (SigningKeyRing(), 0)
        let selection = "SELECT * FROM signing_key ORDER BY retired_at IS NOT NULL, made_at DESC, identifier"
        _ = try db.rows(selection) { row in
            let secret: [UInt8]? = row["secret_key"]
            if let secret, ring.current == nil, let key = SigningKey(secret: secret), let madeAt: Date = row["made_at"]
            {
                ring.current = Current(key: key, madeAt: madeAt)
            } else if secret == nil, let key = retiredKey(row) {
                ring.retired.append(key)
            } else {
                flaws += 1
            }
        }
        return (ring, flaws)
    }

    private static func retiredKey(_ row: borrowing SQLiteRow) -> Retired? {
        guard let identifier: String = row["identifier"], let text: String = row["public_key"],
            let madeAt: Date = row["made_at"], let retiredAt: Date = row["retired_at"],
            let key = try? JSONValue(parsing: Array(text.utf8), limits: JSONLimits(size: 4096))
        else { return nil }
        return Retired(identifier: identifier, publicKey: key, madeAt: madeAt, retiredAt: retiredAt)
    }

    /// Replaces all stored keys with these.
    func store(_ db: SQLiteConnection) throws {
        try db.run("DELETE FROM signing_key")
        if let current {
            try db.run(
                "INSERT INTO signing_key (identifier, public_key, secret_key, made_at) VALUES (?, ?, ?, ?)",
                current.key.identifier,
                current.key.publicKey.text,
                current.key.secret,
                current.madeAt
            )
        }
        for key in retired {
            try db.run(
                "INSERT INTO signing_key (identifier, public_key, made_at, retired_at) VALUES (?, ?, ?, ?)",
                key.identifier,
                key.publicKey.text,
                key.madeAt,
                key.retiredAt
            )
        }
    }
}
