// For `StoreError`: the compiler passes over the type of a thrown error when it says that this import is not used in package declarations.
package import DeviceStorage
package import EmbeddedDirectory
package import FoundationEssentials
package import Identity
import JSONWebSignature
package import SharedDevice
import StrictJSON

/// The identity provider of a device that has no organization behind it: the users of its own `UserDirectory`.
///
/// A wrong password and a name that nobody has are one and the same to the caller, in the answer and in the time it
/// takes.
package final class EmbeddedIdentityProvider: IdentityProvider {
    /// How long an access token is valid, in seconds.
    package static let tokenLifetime: TimeInterval = 3600

    /// How long a key that is over is given out at most, and a token waits for one that could not be stored.
    private static let tendingPause = Duration.seconds(600)

    private let directory: UserDirectory
    private let keys: SigningKeys
    private let decoy: PasswordHash
    /// Two scrypt hashes at once: 128 MiB. Of no lower priority than others: whoever keeps the processors busy would keep people from
    /// signing in.
    private let hashing = Workers(label: "hashing", count: 2, capacity: 32)
    private let lookups = Workers(label: "directory", count: 1, capacity: 256)
    private let date: @Sendable () -> Date
    /// Sees to the keys where no token is asked for.
    private let tending: Task<Void, Never>

    /// A provider of the users in `directory`.
    ///
    /// - Parameters:
    ///   - publish: Told at once, and before a new key signs, what ``signingKeys`` is then. It may write a file; if that fails, it is told again.
    ///   - report: Told when something is wrong with the keys of its tokens, and `nil` when that is over. Nobody's sign-in fails because of it.
    ///   - date: The time that tokens end by.
    /// - Throws: `IdentityError`: `providerFailed` where libcrypt has no scrypt, or the directory cannot be read.
    package init(
        directory: UserDirectory,
        publish: @escaping @Sendable (String) throws(StoreError) -> Void = { _ in },
        report: @escaping @Sendable (String?) -> Void = { _ in },
        date: @escaping @Sendable () -> Date = { Date() }
    ) throws(IdentityError) {
        self.directory = directory
        self.date = date
        do {
            keys = try SigningKeys(directory: directory, now: date(), publish: publish, report: report)
        } catch {
            throw IdentityError(.providerFailed, error.description)
        }
        do {
            decoy = try PasswordHash.decoy(cost: directory.passwordCost)
        } catch {
            throw IdentityError(.providerFailed, error.description)
        }
        tending = Task { [keys, lookups] in
            while (try? await Task.sleep(for: Self.tendingPause)) != nil {
                // Where too many look something up, the next round comes.
                try? await lookups.run { keys.tend(at: date()) }
            }
        }
    }

    deinit { tending.cancel() }

    package func authenticate(_ request: SignInRequest) async throws(IdentityError) -> AuthenticatedIdentity {
        guard let password = request.password else { throw .passwordRequired }
        let verdict: Verdict
        do {
            verdict = try await hashing.run { self.check(password, ofUserNamed: request.username) }
        } catch {
            verdict = .none(.busy)
        }
        switch verdict {
        case .right(let user):
            guard !user.isDisabled else { throw .accountDisabled }
            return AuthenticatedIdentity(account: user.account, isAdministrator: user.role == .administrator)
        case .wrong:
            throw .invalidGrant
        case .none(let error):
            throw error
        }
    }

    package func issueToken(for account: Account, scopes: Set<String>) async throws(IdentityError) -> AccessToken {
        for scope in scopes where !AccessToken.isScope(scope) { throw .invalidScope(scope) }
        let issued: Result<AccessToken, IdentityError>
        do {
            issued = try await lookups.run { [self] in
                Result { () throws(IdentityError) in try token(for: account, scopes) }
            }
        } catch {
            throw .busy
        }
        return try issued.get()
    }

    /// The keys that its tokens are checked with, and its name as their issuer.
    package var signingKeys: String? { keys.published(at: date()) }

    /// Blocks its thread for the database.
    private func token(for account: Account, _ scopes: Set<String>) throws(IdentityError) -> AccessToken {
        let user: DirectoryUser?
        do {
            user = try directory.user(withIdentifier: account.identifier)
        } catch {
            throw IdentityError(.providerFailed, error.description)
        }
        guard let user else { throw .accountUnknown }
        guard !user.isDisabled else { throw .accountDisabled }
        let now = date()
        let claims = try TokenClaims(issuer: keys.issuer, subject: user.account.identifier, scopes: scopes, at: now)
        do {
            let value = try keys.current(at: now).sign(claims.json, type: TokenClaims.type)
            return AccessToken(value: value, scopes: scopes, expiresAt: claims.end)
        } catch {
            throw IdentityError(.providerFailed, "\(error)")
        }
    }

    enum Verdict: Sendable {
        case right(DirectoryUser)
        case wrong
        case none(IdentityError)
    }

    /// Blocks its thread for one hash, whoever the user is.
    ///
    /// - Parameter hashed: called after the hash, for tests. The hash takes long: an administrator may disable or remove the user meanwhile.
    func check(_ password: Secret, ofUserNamed username: String, hashed: () throws -> Void = {}) -> Verdict {
        do {
            let found = try directory.credentials(ofUserNamed: username)
            let hash = try found.map { try PasswordHash(stored: $0.passwordHash) } ?? decoy
            guard try hash.matches(password), let found else { return .wrong }
            try hashed()
            guard let current = try directory.credentials(ofUserNamed: username),
                current.user.account.identifier == found.user.account.identifier,
                current.passwordHash == found.passwordHash
            else { return .wrong }
            return .right(current.user)
        } catch let error as PasswordError where error == .containsNUL || error == .tooLong {
            // Nobody can have such a password, so the quick answer tells nothing about the user.
            return .wrong
        } catch {
            return .none(IdentityError(.providerFailed, "\(error)"))
        }
    }
}
