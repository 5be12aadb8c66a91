import FoundationEssentials
import JSONWebSignature
import SQLite
import StrictJSON

/// When a key gives way to the next. Pure. A clock that was set back counts as one that has run on: a key of the future would sign for ever.
enum SigningKeySchedule {
    /// How long a key signs, in seconds: 30 days.
    static let service: TimeInterval = 30 * 86_400
    /// How long the public half is still given out afterwards, in seconds: the last token ends, and clocks differ by minutes.
    static let afterlife: TimeInterval = EmbeddedIdentityProvider.tokenLifetime + 600
    /// How far a clock may be set back without a consequence, in seconds.
    private static let tolerance: TimeInterval = 600

    /// Whether a key that was made then still signs.
    static func signs(madeAt: Date, now: Date) -> Bool {
        (-tolerance..<service).contains(now.timeIntervalSince(madeAt))
    }

    /// Whether tokens of a key that signs no more may still be valid.
    static func isRemembered(retiredAt: Date, now: Date) -> Bool { now.timeIntervalSince(retiredAt) < afterlife }
}

/// The keys of this device's tokens: one that signs, and the public halves of those before it, as long as tokens of theirs may be valid. A value:
/// what the database has, or is to have.
struct SigningKeyRing: Sendable {
    /// The key that signs.
    struct Current: Sendable {
        let key: SigningKey
        let madeAt: Date
    }

    /// What is left of a key that signs no more.
    struct Retired: Sendable, Equatable {
        let identifier: String
        let publicKey: JSONValue
        let madeAt: Date
        var retiredAt: Date
    }

    /// `nil` until the first one is made.
    var current: Current?
    /// The latest first.
    var retired: [Retired] = []

    /// Whether no new key is due.
    func signs(at now: Date) -> Bool {
        current.map { SigningKeySchedule.signs(madeAt: $0.madeAt, now: now) } ?? false
    }

    /// Forgets what is over. A key that was retired in the future counts as retired just now: the clock was set back since, and would keep it for long.
    ///
    /// - Returns: whether anything has changed.
    mutating func forget(at now: Date) -> Bool {
        let before = retired
        retired.removeAll { !SigningKeySchedule.isRemembered(retiredAt: $0.retiredAt, now: now) }
        for index in retired.indices { retired[index].retiredAt = min(retired[index].retiredAt, now) }
        return retired != before
    }

    /// The same with a new key; the one until now is retired, and its secret half is gone.
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
    /// Reads the keys.
    ///
    /// - Returns: the keys, and how many rows make no sense. Such a row counts as no key.
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

    /// Puts these keys in the place of all that are there.
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
