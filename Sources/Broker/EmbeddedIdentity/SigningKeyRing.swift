import Basics
import Cryptography
import DeviceStorage
import FoundationEssentials

/// The rotation schedule of signing keys. Pure. A key from the future counts as expired: the clock was set back, and
/// the key would otherwise sign for too long.
enum SigningKeySchedule {
    /// How long a key signs, in seconds: 30 days.
    static let service: TimeInterval = 30 * 86_400
    /// How long the public half stays published afterwards, in seconds: the lifetime of the last token, and 10 minutes
    /// for clocks that differ.
    static let afterlife: TimeInterval = EmbeddedIdentityProvider.tokenLifetime + 600
    /// How far a clock may be set back without an effect, in seconds.
    private static let tolerance: TimeInterval = 600

    /// Whether a key of this age still signs.
    static func signs(madeAt: Date, now: Date) -> Bool {
        (-tolerance..<service).contains(now.timeIntervalSince(madeAt))
    }

    /// Whether tokens of a retired key may still be valid.
    static func isRemembered(retiredAt: Date, now: Date) -> Bool { now.timeIntervalSince(retiredAt) < afterlife }
}

/// The keys of this device's tokens: the current one, and the public halves of retired keys whose tokens may still be
/// valid. A value, as the database stores it.
struct SigningKeyRing: Sendable {
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
    func signs(at now: Date) -> Bool { current.map { SigningKeySchedule.signs(madeAt: $0.madeAt, now: now) } ?? false }

    /// Removes expired keys. A retirement date in the future, after a clock that was set back, becomes `now`; otherwise
    /// the key would stay for too long. Returns whether anything has changed.
    mutating func forget(at now: Date) -> Bool {
        let before = retired
        retired.removeAll { !SigningKeySchedule.isRemembered(retiredAt: $0.retiredAt, now: now) }
        for index in retired.indices { retired[index].retiredAt = min(retired[index].retiredAt, now) }
        return retired != before
    }

    /// The ring with a new key. The old one is retired, without its secret half.
    func renewed(at now: Date) -> SigningKeyRing {
        let last = current.map { current in
            Retired(
                identifier: current.key.identifier,
                publicKey: current.key.publicKey,
                madeAt: current.madeAt,
                retiredAt: now
            )
        }
        return SigningKeyRing(
            current: Current(key: SigningKey(), madeAt: now),
            retired: [last].compactMap { $0 } + retired
        )
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
        _ = try db.rows(
            """
            SELECT identifier, public_key, secret_key, made_at, retired_at FROM signing_key
            ORDER BY retired_at IS NOT NULL, made_at DESC, identifier
            """
        ) { row in
            let secret: [UInt8]? = row["secret_key"]
            if let secret, ring.current == nil, let key = SigningKey(secret: secret), let madeAt = date(row, "made_at")
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
        let (identifier, text): (String?, String?) = (row["identifier"], row["public_key"])
        guard let identifier, let text, let madeAt = date(row, "made_at"), let retiredAt = date(row, "retired_at"),
            let key = try? JSONValue(parsing: Array(text.utf8), limits: JSONLimits(size: 4096))
        else { return nil }
        return Retired(identifier: identifier, publicKey: key, madeAt: madeAt, retiredAt: retiredAt)
    }

    private static func date(_ row: borrowing SQLiteRow, _ column: String) -> Date? {
        let seconds: Double? = row[column]
        return seconds.map(Date.init(timeIntervalSince1970:))
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
                current.madeAt.timeIntervalSince1970
            )
        }
        for key in retired {
            try db.run(
                "INSERT INTO signing_key (identifier, public_key, made_at, retired_at) VALUES (?, ?, ?, ?)",
                key.identifier,
                key.publicKey.text,
                key.madeAt.timeIntervalSince1970,
                key.retiredAt.timeIntervalSince1970
            )
        }
    }
}
