package import Identity
package import OpenIDConnect

/// The outcome of a refresh or a renewal without its values, for comparison.
package enum OutcomeKind: Equatable, Sendable {
    case renewed, sessionOver, reauthenticationNeeded, misconfigured, scopeRefused
    case unavailable(mayBeUsed: Bool)
}

package struct NotRenewed: Error, CustomStringConvertible {
    package let description: String

    package init(description: String) { self.description = description }
}

extension RefreshOutcome {
    package var kind: OutcomeKind {
        switch self {
        case .renewed: .renewed
        case .sessionOver: .sessionOver
        case .reauthenticationNeeded: .reauthenticationNeeded
        case .misconfigured: .misconfigured
        case .scopeRefused: .scopeRefused
        case .unavailable(_, let mayBeUsed): .unavailable(mayBeUsed: mayBeUsed)
        }
    }

    package var tokens: TokenAnswer {
        get throws {
            guard case .renewed(let tokens) = self else { throw NotRenewed(description: "\(self)") }
            return tokens
        }
    }

    /// The error; `nil` if the provider is available.
    package var outage: IdentityError? {
        guard case .unavailable(let error, _) = self else { return nil }
        return error
    }
}

extension RenewalOutcome {
    package var kind: OutcomeKind {
        switch self {
        case .renewed: .renewed
        case .sessionOver: .sessionOver
        case .reauthenticationNeeded: .reauthenticationNeeded
        case .misconfigured: .misconfigured
        case .scopeRefused: .scopeRefused
        case .unavailable(_, let mayBeUsed): .unavailable(mayBeUsed: mayBeUsed)
        }
    }

    /// The error; `nil` if the provider is available.
    package var outage: IdentityError? {
        guard case .unavailable(let error, _) = self else { return nil }
        return error
    }
}

extension OrganisationProvider {
    /// Signs Ada in as her browser does.
    ///
    /// - Parameter browse: opens an address, and returns the query of the redirect.
    package func signIn(
        hint: String = "ada",
        only: ProviderRecord.Person? = nil,
        browse: (String) async throws -> String
    ) async throws -> ProviderSignIn {
        let begun = try await begin(SignInStart(.browser, redirect: testRedirect, loginHint: hint, only: only))
        guard case .browser(let address) = begun.prompt else { throw NoAddress() }
        return try await complete(begun.handle, query: browse(address))
    }

    package func renew(_ record: ProviderRecord, mayBeUsed: Bool = false) async -> RenewalOutcome {
        await renew(record, scopes: [], mayBeUsed: mayBeUsed)
    }

    /// Renews a record, and returns the new token and the next record.
    package func renewed(_ record: ProviderRecord) async throws -> (token: AccessToken, record: ProviderRecord) {
        let outcome = await renew(record)
        guard case .renewed(let token, let next?) = outcome else { throw NotRenewed(description: "\(outcome)") }
        return (token, next)
    }
}
