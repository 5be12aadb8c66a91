import Basics
import FoundationEssentials
import HTTPClient
package import Identity

/// The reasons why a sign-in or a refresh failed, with the cause and the remedy. They contain no secrets.
extension IdentityError {
    static func issuerDiffers(_ found: String, from configured: Issuer) -> IdentityError {
        IdentityError(
            .providerMisconfigured,
            "the provider calls itself \(found.printable(256)), the configuration \(configured); they must be the same, to the last "
                + "slash"
        )
    }

    /// The provider's response is malformed. A retry does not help.
    ///
    /// - Parameter flaw: The member, and what is wrong with it.
    static func unusable(_ issuer: Issuer, _ flaw: String) -> IdentityError {
        IdentityError(.providerMisconfigured, unusableText(issuer, flaw))
    }

    /// The provider does not work at the moment, or the response comes from something else, such as a captive portal.
    static func unusableNow(_ issuer: Issuer, _ flaw: String, _ retryAfter: Duration? = nil) -> IdentityError {
        IdentityError(
            .providerUnavailable,
            "\(issuer) responds with something unusable: \(flaw.printable(600)); try again later, and see its own log",
            retryAfter: retryAfter
        )
    }

    private static func unusableText(_ issuer: Issuer, _ flaw: String) -> String {
        "\(issuer) responds with something unusable: \(flaw.printable(600)); the administrator of \(issuer) has to correct that"
    }

    /// - Parameter reason: The algorithm and the key, in the words of `SignatureError`.
    static func notSigned(_ name: String, by issuer: Issuer, _ reason: String) -> IdentityError {
        IdentityError(.authenticationFailed, "the \(name) is not signed by \(issuer) (\(reason))")
    }

    package static let anotherSignIn = IdentityError(
        .authenticationFailed,
        "the response belongs to another sign-in; begin again"
    )

    static func wrongTime(_ token: Date, now: Date) -> IdentityError {
        IdentityError(
            .authenticationFailed,
            "the ID token is from \(text(token)), this device's clock says \(text(now)); set the clock, and sign in again"
        )
    }

    private static func text(_ date: Date) -> String { date.formatted(.iso8601) }

    static func earlierPerson(_ issuer: Issuer) -> IdentityError {
        IdentityError(
            .authenticationFailed,
            "\(issuer) took an earlier person's sign-in; close its pages and try again"
        )
    }

    /// The provider has signed a token whose content is wrong.
    ///
    /// - Parameter flaw: The member, and what is wrong with it.
    static func badToken(_ issuer: Issuer, _ flaw: String) -> IdentityError {
        IdentityError(.authenticationFailed, unusableText(issuer, flaw))
    }

    /// The token is for another client than this device.
    static func otherAudience(_ issuer: Issuer, _ flaw: String) -> IdentityError {
        IdentityError(
            .authenticationFailed,
            "\(issuer) responds with something unusable: \(flaw); compare oidcClientID with what is registered there, or have "
                + "the administrator of \(issuer) correct that"
        )
    }

    static func redirectRefused(_ redirect: String, _ issuer: Issuer) -> IdentityError {
        IdentityError(
            .providerMisconfigured,
            "\(issuer) does not know the redirect address of this device; register \(redirect) there"
        )
    }

    package static let cancelled = IdentityError(.userCanceled, "the sign-in was cancelled")

    static let expired = IdentityError(.loginExpired, "the code has expired; begin again")

    /// The provider sent no response.
    static func unreachable(_ issuer: Issuer, _ reason: String) -> IdentityError {
        IdentityError(.providerUnavailable, "\(issuer) cannot be reached (\(reason.printable(300)))")
    }

    static func unknownClient(_ issuer: Issuer) -> IdentityError {
        IdentityError(
            .providerMisconfigured,
            "\(issuer) does not know this device's client ID or secret; compare oidcClientID and the credential oidc-client-secret "
                + "with what is registered there"
        )
    }

    static func scopesRefused(_ issuer: Issuer) -> IdentityError {
        IdentityError(
            .invalidScope,
            "\(issuer) refuses the scopes of the sign-in (invalid_scope); allow the client these scopes, or remove them from "
                + "oidcScopes or the app's manifest"
        )
    }

    static func misconfigured(_ issuer: Issuer, _ what: String) -> IdentityError {
        IdentityError(.providerMisconfigured, "\(issuer) \(what.printable(300))")
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
    static func outage(_ error: HTTPError, _ issuer: Issuer) -> IdentityError {
        switch error.reason {
        case .tooLarge, .encoded, .redirected: .unusableNow(issuer, error.description)
        default: .unreachable(issuer, error.description)
        }
    }
}
