import FoundationEssentials
import HTTPClient
import StrictJSON

/// Why nobody is signed in, or why a token is not renewed: with what was found, and what helps. Nothing in it is secret.
package struct SignInError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The raw values go over the wire: OAuth's or OpenID Connect's word where they have one.
    package enum Code: String, Sendable {
        /// The answer cannot be believed.
        case authenticationFailed = "authentication_failed"
        /// The provider needs the person.
        case interactionRequired = "interaction_required"
        /// Configuration and provider do not fit each other.
        case providerMisconfigured = "provider_misconfigured"
        /// The provider cannot be reached, or does not work at the moment.
        case providerUnavailable = "provider_unavailable"
        /// The time for the sign-in is over.
        case loginExpired = "login_expired"
        /// The person does not want to.
        case userCanceled = "user_canceled"
        /// The provider refuses what the sign-in asks for.
        case invalidScope = "invalid_scope"
    }

    package let code: Code
    package let description: String
    /// How long the provider wants to be left alone (`Retry-After`), at most 300 s; `nil` where it does not say.
    package let retryAfter: Duration?

    package init(_ code: Code, _ description: String, retryAfter: Duration? = nil) {
        self.code = code
        self.description = description
        self.retryAfter = retryAfter
    }
}

// MARK: Texts

extension SignInError {
    static func issuerDiffers(_ found: String, from configured: Issuer) -> SignInError {
        SignInError(
            .providerMisconfigured,
            "the provider calls itself \(found.printable(256)), the configuration \(configured); they must be the same, to the last "
                + "slash"
        )
    }

    /// The response of a provider that answers, and not as it has to. Asking again does not help.
    ///
    /// - Parameter flaw: the member, and what is wrong with it.
    static func unusable(_ issuer: Issuer, _ flaw: String) -> SignInError {
        SignInError(.providerMisconfigured, unusableText(issuer, flaw))
    }

    /// The response of a provider that does not work at the moment, or of something else in its place.
    static func unusableNow(_ issuer: Issuer, _ flaw: String, _ retryAfter: Duration? = nil) -> SignInError {
        SignInError(
            .providerUnavailable,
            "\(issuer) responds with something unusable: \(flaw.printable(600)); try again later, and see its own log",
            retryAfter: retryAfter
        )
    }

    private static func unusableText(_ issuer: Issuer, _ flaw: String) -> String {
        "\(issuer) responds with something unusable: \(flaw.printable(600)); whoever runs \(issuer) has to mend that"
    }

    /// - Parameter reason: algorithm and key, as `SignatureError` says them.
    static func notSigned(_ name: String, by issuer: Issuer, _ reason: String) -> SignInError {
        SignInError(.authenticationFailed, "the \(name) is not signed by \(issuer) (\(reason))")
    }

    package static let anotherSignIn = SignInError(
        .authenticationFailed,
        "the answer belongs to another sign-in; begin again"
    )

    static func wrongTime(_ token: Date, now: Date) -> SignInError {
        SignInError(
            .authenticationFailed,
            "the ID token is from \(text(token)), this device's clock says \(text(now)); set the clock, and sign in again"
        )
    }

    private static func text(_ date: Date) -> String { date.formatted(.iso8601) }

    static func earlierPerson(_ issuer: Issuer) -> SignInError {
        SignInError(
            .authenticationFailed,
            "\(issuer) took an earlier person's sign-in; close its pages and try again"
        )
    }

    /// A token that the provider has signed, and that does not say what it has to.
    ///
    /// - Parameter flaw: the member, and what is wrong with it.
    static func badToken(_ issuer: Issuer, _ flaw: String) -> SignInError {
        SignInError(.authenticationFailed, unusableText(issuer, flaw))
    }

    /// A token for others than this device.
    static func otherAudience(_ issuer: Issuer, _ flaw: String) -> SignInError {
        SignInError(
            .authenticationFailed,
            "\(issuer) responds with something unusable: \(flaw); compare oidcClientID with what is registered there, or have "
                + "whoever runs \(issuer) mend that"
        )
    }

    static func redirectRefused(_ redirect: String, _ issuer: Issuer) -> SignInError {
        SignInError(.providerMisconfigured, "register \(redirect) with \(issuer)")
    }

    package static let cancelled = SignInError(.userCanceled, "the sign-in was cancelled")

    static let expired = SignInError(.loginExpired, "the code has expired; begin again")

    /// There was no response.
    static func unreachable(_ issuer: Issuer, _ reason: String, _ retryAfter: Duration? = nil) -> SignInError {
        SignInError(
            .providerUnavailable,
            "\(issuer) cannot be reached (\(reason.printable(300)))",
            retryAfter: retryAfter
        )
    }

    static func unknownClient(_ issuer: Issuer) -> SignInError {
        SignInError(.providerMisconfigured, "\(issuer) does not know this device's client ID or secret")
    }

    static func scopesRefused(_ issuer: Issuer) -> SignInError {
        SignInError(
            .invalidScope,
            "\(issuer) refuses the scopes of the sign-in (invalid_scope); have the client allowed them, or take them out of oidcScopes "
                + "or the app's manifest"
        )
    }

    static func misconfigured(_ issuer: Issuer, _ what: String) -> SignInError {
        SignInError(.providerMisconfigured, "\(issuer) \(what.printable(300))")
    }

    init(_ error: HTTPError, _ issuer: Issuer) {
        switch error.reason {
        case .redirected:
            self = .misconfigured(
                issuer,
                "answers \(error.attempted) with another address, which is not followed; name the final one"
            )
        case .cancelled:
            self = .cancelled
        default:
            self = .outage(error, issuer)
        }
    }

    /// The same as a reason to try again, whatever it is.
    static func outage(_ error: HTTPError, _ issuer: Issuer) -> SignInError {
        switch error.reason {
        case .tooLarge, .encoded, .redirected: .unusableNow(issuer, error.description)
        default: .unreachable(issuer, error.description)
        }
    }
}
