import Basics
import Cryptography
// For `StoreError`: the compiler ignores types of thrown errors when it warns that the import is unused.
public import DeviceStorage
public import FoundationEssentials
public import Identity
public import SharedDevice

/// The identity provider of a device without an organisation, for the users in its `UserDirectory`. Neither response
/// nor time tells a wrong password from an unknown username, or a wrong PIN from an unknown badge.
public final class EmbeddedIdentityProvider: IdentityProvider {
    /// The lifetime of an access token, in seconds.
    public static let tokenLifetime: TimeInterval = 3600

    /// The time between two rounds of key maintenance. An expired key stays published for at most this much longer.
    private static let tendingPause = Duration.seconds(600)

    private let directory: UserDirectory
    private let keys: SigningKeys
    private let decoy: PasswordHash
    /// Two scrypt hashes at a time use 128 MiB. Normal priority: busy processors do not prevent sign-ins.
    private let hashing = Workers(label: "hashing", count: 2, capacity: 32)
    private let lookups = Workers(label: "directory", count: 1, capacity: 256)
    private let date: @Sendable () -> Date
    /// Maintains the keys while no token is requested.
    private let tending: Task<Void, Never>

    /// A provider of the users in `directory`.
    ///
    /// - Parameters:
    ///   - publish: Called with ``signingKeys`` at once, and before a new key signs. It may write a file. If it fails,
    ///     it is called again later.
    ///   - report: Called with a problem of the signing keys, and with `nil` when the problem is over. The problem
    ///     affects no sign-in.
    ///   - date: The clock for the lifetime of tokens.
    /// - Throws: `IdentityError`: `providerFailed` if libcrypt has no scrypt, or if the directory cannot be read.
    public init(
        directory: UserDirectory,
        publish: @escaping @Sendable (String) throws(StoreError) -> Void = { _ in },
        report: @escaping @Sendable (String?) -> Void = { _ in },
        date: @escaping @Sendable () -> Date = { Date() }
    ) throws(IdentityError) {
        self.directory = directory
        self.date = date
        keys = try Self.working { try SigningKeys(directory: directory, now: date(), publish: publish, report: report) }
        decoy = try Self.working { try PasswordHash.decoy(cost: directory.passwordCost) }
        tending = Task { [keys, lookups] in
            while (try? await Task.sleep(for: Self.tendingPause)) != nil {
                // If the queue is full, the next round does it.
                await lookups.run { keys.tend(at: date()) }
            }
        }
    }

    deinit { tending.cancel() }

    public func authenticate(_ request: SignInRequest) async throws(IdentityError) -> AuthenticatedIdentity {
        let (secret, refusal) = try Self.secret(of: request)
        guard let verdict = await hashing.run({ self.check(secret, of: request) }) else { throw .busy }
        guard let user = try verdict.get() else { throw refusal }
        guard !user.isDisabled else { throw .accountDisabled }
        return AuthenticatedIdentity(
            account: user.account,
            isAdministrator: user.role == .administrator,
            groups: .known(Set(user.groups))
        )
    }

    public func issueToken(for account: Account, scopes: Set<String>) async throws(IdentityError) -> AccessToken {
        for scope in scopes where !AccessToken.isScope(scope) { throw .invalidScope(scope) }
        let issued = await lookups.run { [self] in
            Result { () throws(IdentityError) in try token(for: account, scopes) }
        }
        guard let issued else { throw .busy }
        return try issued.get()
    }

    /// The public keys of its tokens, with its issuer identifier.
    public var signingKeys: String? { keys.published(at: date()) }

    /// `false` also if the database cannot be read: sign-ins fail then.
    public var takesBadges: Bool { (try? directory.hasBadges()) ?? false }

    /// Blocks its thread for the database.
    private func token(for account: Account, _ scopes: Set<String>) throws(IdentityError) -> AccessToken {
        let user = try Self.working { try directory.user(withIdentifier: account.identifier) }
        guard let user else { throw .accountUnknown }
        guard !user.isDisabled else { throw .accountDisabled }
        let now = date()
        let claims = try TokenClaims(issuer: keys.issuer, subject: user.account.identifier, scopes: scopes, at: now)
        let value = try Self.working { try keys.current(at: now).sign(claims.json, type: TokenClaims.type) }
        return AccessToken(value: value, scopes: scopes, expiresAt: claims.end)
    }

    /// Runs `body`, whose errors become `providerFailed`.
    private static func working<Value>(_ body: () throws -> Value) throws(IdentityError) -> Value {
        do {
            return try body()
        } catch {
            throw IdentityError(.providerFailed, "\(error)")
        }
    }

    /// The secret of the request, and the refusal if it is wrong.
    private static func secret(of request: SignInRequest) throws(IdentityError) -> (Secret, refusal: IdentityError) {
        switch request {
        case .password(_, let password?): return (password, .invalidGrant)
        case .password(_, nil): throw .passwordRequired
        // No user can have another number or PIN, so the fast response reveals nothing about a user.
        case .badge(let number, let pin) where number.isBadgeNumber && pin.isPIN: return (pin, .invalidBadge)
        case .badge: throw .invalidBadge
        case .pin(_, let pin) where pin.isPIN: return (pin, .invalidPIN)
        case .pin: throw .invalidPIN
        }
    }

    /// Returns the user; `nil` if the secret is wrong. Blocks its thread for one hash, whether or not the user exists.
    ///
    /// - Parameter hashed: Called after the hash, with the stored hash or the decoy, for tests. The hash takes so long
    ///   that an administrator may disable or remove the user in the meantime.
    func check(
        _ secret: Secret,
        of request: SignInRequest,
        hashed: (PasswordHash) throws -> Void = { _ in }
    ) -> Result<DirectoryUser?, IdentityError> {
        do {
            let found = try directory.candidate(for: request)
            let hash = try found?.hash.map { try PasswordHash(stored: $0) } ?? decoy
            let isRight = try hash.matches(secret)
            try hashed(hash)
            guard isRight, let found, let current = try directory.candidate(for: request),
                current.user.account.identifier == found.user.account.identifier, current.hash == found.hash
            else { return .success(nil) }
            return .success(current.user)
        } catch let error as PasswordError where error == .containsNUL || error == .tooLong {
            // No user can have such a password, so the fast response reveals nothing about the user.
            return .success(nil)
        } catch {
            return .failure(IdentityError(.providerFailed, "\(error)"))
        }
    }
}
