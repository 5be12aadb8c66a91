import DeviceStorage
package import FoundationEssentials
package import Identity
import SharedDevice

/// The identity provider of a device that has no organization behind it: the users of its own `UserDirectory`.
///
/// A wrong password and a name that nobody has are one and the same to the caller, in the answer and in the time it
/// takes.
package final class EmbeddedIdentityProvider: IdentityProvider {
    /// How long an access token is valid, in seconds.
    package static let tokenLifetime: TimeInterval = 3600

    private let directory: UserDirectory
    private let decoy: PasswordHash
    /// Two scrypt hashes at once: 128 MiB. Of no lower priority than others: whoever keeps the processors busy would keep people from
    /// signing in.
    private let hashing = Workers(label: "hashing", count: 2, capacity: 32)
    private let lookups = Workers(label: "directory", count: 1, capacity: 256)
    private let date: @Sendable () -> Date

    /// A provider of the users in `directory`.
    ///
    /// - Parameter date: The time that tokens end by.
    /// - Throws: `IdentityError`: `providerFailed` where libcrypt has no scrypt.
    package init(
        directory: UserDirectory,
        date: @escaping @Sendable () -> Date = { Date() }
    ) throws(IdentityError) {
        self.directory = directory
        self.date = date
        do {
            decoy = try PasswordHash.decoy(cost: directory.passwordCost)
        } catch {
            throw IdentityError(.providerFailed, error.description)
        }
    }

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

    package func issueToken(
        for identity: AuthenticatedIdentity,
        scopes: Set<String>
    ) async throws(IdentityError) -> AccessToken {
        for scope in scopes where !Self.isScopeToken(scope) { throw .invalidScope(scope) }
        let found: Result<DirectoryUser?, UserDirectoryError>
        do {
            found = try await lookups.run { [directory] in
                Result { () throws(UserDirectoryError) in
                    try directory.user(withIdentifier: identity.account.identifier)
                }
            }
        } catch {
            throw .busy
        }
        let user: DirectoryUser?
        switch found {
        case .success(let known): user = known
        case .failure(let error): throw IdentityError(.providerFailed, error.description)
        }
        guard let user else { throw .accountUnknown }
        guard !user.isDisabled else { throw .accountDisabled }
        return .makeRandom(scopes: scopes, expiresAt: date().addingTimeInterval(Self.tokenLifetime))
    }

    /// Does nothing: only tokens outlive a sign-in, and the broker drops them.
    package func endSession(for identity: AuthenticatedIdentity) async throws(IdentityError) {}

    private enum Verdict: Sendable {
        case right(DirectoryUser)
        case wrong
        case none(IdentityError)
    }

    /// Blocks its thread for one hash, whoever the user is.
    private func check(_ password: Secret, ofUserNamed username: String) -> Verdict {
        do {
            let found = try directory.credentials(ofUserNamed: username)
            let hash = try found.map { try PasswordHash(stored: $0.passwordHash) } ?? decoy
            guard try hash.matches(password), let user = found?.user else { return .wrong }
            return .right(user)
        } catch let error as PasswordError where error == .containsNUL || error == .tooLong {
            // Nobody can have such a password, so the quick answer tells nothing about the user.
            return .wrong
        } catch {
            return .none(IdentityError(.providerFailed, "\(error)"))
        }
    }

    /// RFC 6749, section 3.3: visible ASCII without the quotation mark and the backslash.
    private static func isScopeToken(_ text: String) -> Bool {
        !text.isEmpty && text.utf8.allSatisfy { (0x21...0x7E).contains($0) && $0 != 0x22 && $0 != 0x5C }
    }
}

extension AccessToken {
    /// A token of 256 random bits, in base64url.
    fileprivate static func makeRandom(scopes: Set<String>, expiresAt: Date) -> AccessToken {
        var generator = SystemRandomNumberGenerator()
        let bytes = (0..<32).map { _ in UInt8.random(in: .min ... .max, using: &generator) }
        let value = Data(bytes).base64EncodedString()
            .replacing("+", with: "-").replacing("/", with: "_").replacing("=", with: "")
        return AccessToken(value: value, scopes: scopes, expiresAt: expiresAt)
    }
}
