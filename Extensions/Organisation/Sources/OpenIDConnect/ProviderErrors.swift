import Basics
import FoundationEssentials
import HTTPClient

/// The reason why a sign-in or a refresh failed, with the cause and the remedy. Contains no secrets.
package struct SignInError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The raw values go over the wire: they are the words of OAuth or OpenID Connect, if those have one.
    package enum Code: String, Sendable {
        /// The response cannot be trusted.
        case authenticationFailed = "authentication_failed"
        /// The person has to authenticate.
        case interactionRequired = "interaction_required"
        /// The configuration and the provider do not match.
        case providerMisconfigured = "provider_misconfigured"
        /// The provider cannot be reached, or does not work at the moment.
        case providerUnavailable = "provider_unavailable"
        case loginExpired = "login_expired"
        case userCanceled = "user_canceled"
        /// The provider refuses the requested scopes.
        case invalidScope = "invalid_scope"
    }

    package let code: Code
    package let description: String
    /// The provider's `Retry-After`, at most 300 s; `nil` if it sent none.
    package let retryAfter: Duration?

    package init(_ code: Code, _ description: String, retryAfter: Duration? = nil) {
        self.code = code
        self.description = description
        self.retryAfter = retryAfter
    }
}

// MARK: Messages

extension SignInError {
    static func issuerDiffers(_ found: String, from configured: Issuer) -> SignInError {
        SignInError(
            .providerMisconfigured,
            "the provider calls itself \(found.printable(256)), the configuration \(configured); they must be the same, to the last "
                + "slash"
        )
    }

    /// The provider's response is malformed. A retry does not help.
    ///
    /// - Parameter flaw: The member, and what is wrong with it.
    static func unusable(_ issuer: Issuer, _ flaw: String) -> SignInError {
        SignInError(.providerMisconfigured, unusableText(issuer, flaw))
    }

    /// The provider does not work at the moment, or the response comes from something else, such as a captive portal.
    static func unusableNow(_ issuer: Issuer, _ flaw: String, _ retryAfter: Duration? = nil) -> SignInError {
        SignInError(
            .providerUnavailable,
            "\(issuer) responds with something unusable: \(flaw.printable(600)); try again later, and see its own log",
            retryAfter: retryAfter
        )
    }

    private static func unusableText(_ issuer: Issuer, _ flaw: String) -> String {
        "\(issuer) responds with something unusable: \(flaw.printable(600)); the administrator of \(issuer) has to correct that"
    }

    /// - Parameter reason: The algorithm and the key, in the words of `SignatureError`.
    static func notSigned(_ name: String, by issuer: Issuer, _ reason: String) -> SignInError {
        SignInError(.authenticationFailed, "the \(name) is not signed by \(issuer) (\(reason))")
    }

    package static let anotherSignIn = SignInError(
        .authenticationFailed,
        "the response belongs to another sign-in; begin again"
    )

    static func wrongTime(_ token: Date, now: Date) -> SignInError {
        SignInError(
            .authenticationFailed,
            "the ID token is from \(text(token)), this device's clock says \(text(now)); set the clock, and sign in again"
        )
    }

    private static func text(_ date: Date) -> String { date.formatted(.iso8601) }

    static func earlierPerson(_ issuer: Issuer) -> SignInError {
        SignInError(.authenticationFailed, "\(issuer) took an earlier person's sign-in; close its pages and try again")
    }

    /// The provider has signed a token whose content is wrong.
    ///
    /// - Parameter flaw: The member, and what is wrong with it.
    static func badToken(_ issuer: Issuer, _ flaw: String) -> SignInError {
        SignInError(.authenticationFailed, unusableText(issuer, flaw))
    }

    /// The token is for another client than this device.
    static func otherAudience(_ issuer: Issuer, _ flaw: String) -> SignInError {
        SignInError(
            .authenticationFailed,
            "\(issuer) responds with something unusable: \(flaw); compare oidcClientID with what is registered there, or have "
                + "the administrator of \(issuer) correct that"
        )
    }

    static func redirectRefused(_ redirect: String, _ issuer: Issuer) -> SignInError {
        SignInError(
            .providerMisconfigured,
            "\(issuer) does not know the redirect address of this device; register \(redirect) there"
        )
    }

    package static let cancelled = SignInError(.userCanceled, "the sign-in was cancelled")

    static let expired = SignInError(.loginExpired, "the code has expired; begin again")

    /// The provider sent no response.
    static func unreachable(_ issuer: Issuer, _ reason: String) -> SignInError {
        SignInError(.providerUnavailable, "\(issuer) cannot be reached (\(reason.printable(300)))")
    }

    static func unknownClient(_ issuer: Issuer) -> SignInError {
        SignInError(
            .providerMisconfigured,
            "\(issuer) does not know this device's client ID or secret; compare oidcClientID and the credential oidc-client-secret "
                + "with what is registered there"
        )
    }

    static func scopesRefused(_ issuer: Issuer) -> SignInError {
        SignInError(
            .invalidScope,
            "\(issuer) refuses the scopes of the sign-in (invalid_scope); allow the client these scopes, or remove them from "
                + "oidcScopes or the app's manifest"
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
                "responds to \(error.attempted) with another address, which is not followed; name the final one"
            )
        case .cancelled: self = .cancelled
        default: self = .outage(error, issuer)
        }
    }

    /// Maps every transport error to `providerUnavailable`, so that the caller retries.
    static func outage(_ error: HTTPError, _ issuer: Issuer) -> SignInError {
        switch error.reason {
        case .tooLarge, .encoded, .redirected: .unusableNow(issuer, error.description)
        default: .unreachable(issuer, error.description)
        }
    }
}
