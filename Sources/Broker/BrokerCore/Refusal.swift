import Basics
import DeviceConfiguration
import FoundationEssentials
package import Identity
@_spi(Extensions) package import SharedDevice

/// A refused request: the error that the caller receives, with a code that is sent over the bus.
///
/// The texts name no account. Any app can receive them, and not every app may know who is signed in.
package struct Refusal: Error, Sendable, Hashable, CustomStringConvertible {
    package let code: SharedDeviceError.Code
    /// One sentence with the cause and the remedy.
    package let description: String
    /// For `scopesDeclined`, if the provider has said so: the requested scopes that it does not grant, and the scopes
    /// that it grants instead.
    package private(set) var declinedScopes: [String] = []
    package private(set) var grantedScopes: [String] = []

    package init(_ code: SharedDeviceError.Code, _ description: String) {
        self.code = code
        self.description = description
    }

    static let noCurrentAccount = Refusal(.noCurrentAccount, "no account is signed in on this device; sign in first")
    static let currentAccountMismatch = Refusal(
        .currentAccountMismatch,
        "another account is signed in on this device; ask for the current account and name that one"
    )
    static let accountAlreadySignedIn =
        Refusal(.accountAlreadySignedIn, "an account is already signed in on this device; sign it out first")
    static let signInUnderWay =
        Refusal(.accountAlreadySignedIn, "another sign-in on this device is in progress; try again")
    static let signedInByLogin = Refusal(
        .notPermitted,
        "on this device people sign in by logging in at the machine itself, and this device takes no password; log in at "
            + "the machine (\"identity\": \"login-session\" in the managed configuration)"
    )
    static let noTokens = Refusal(
        .notPermitted,
        "on this device people sign in by logging in at the machine, which gives no tokens to apps; use the "
            + "credentials of the login, such as Kerberos tickets"
    )
    static func promptNeeded(_ issuer: String) -> Refusal {
        Refusal(.interactionRequired, "this device signs in with \(issuer)'s own page; run shared-device-sign-in")
    }
    static func signInAgain(_ issuer: String) -> Refusal {
        Refusal(.interactionRequired, "\(issuer) wants the person to sign in again; run shared-device-sign-in")
    }
    static let authenticatedTooEarly = Refusal(
        .interactionRequired,
        "the person authenticated longer ago than this app accepts; run: shared-device-sign-in --again"
    )
    static let noClaims = Refusal(
        .notPermitted,
        "only an organisation's provider can meet claims, on its page in a browser; leave the claims out, or have the administrator "
            + "configure such a provider"
    )
    static func endedMeanwhile(_ issuer: String) -> Refusal {
        Refusal(
            .interactionRequired,
            "\(issuer) has ended this person's session while they were signing in; sign in again, or ask the organisation's administrator"
        )
    }
    static func toldTooMuch(_ issuer: String) -> Refusal {
        Refusal(
            .interactionRequired,
            "\(issuer) has ended more sessions during this sign-in than are remembered, and this one may be among them; sign in again"
        )
    }
    static let otherPerson = Refusal(
        .currentAccountMismatch,
        "the session on this device is another person's; have that person sign in again, or sign it out first"
    )
    static let noScopes = Refusal(
        .notPermitted,
        "this app may ask for no token; add what it may ask for to its manifest, as \"scopes\": [\"openid\"]"
    )
    static func refusedScopes(_ scopes: [String]) -> Refusal {
        let names = scopes.joined(separator: " ").printable(200)
        return Refusal(.notPermitted, "this app may not ask for \(names); add that to \"scopes\" in its manifest")
    }
    static func declinedScopes(_ declined: [String], granted: [String]) -> Refusal {
        let (missing, given) = (
            declined.joined(separator: " ").printable(200), granted.joined(separator: " ").printable(200)
        )
        var refusal = Refusal(
            .scopesDeclined,
            "the organisation's provider does not grant \(missing), and grants \(given.isEmpty ? "nothing" : given); ask for that alone, or "
                + "have the provider's administrator allow the rest"
        )
        (refusal.declinedScopes, refusal.grantedScopes) = (declined, granted)
        return refusal
    }
    /// The provider's token grants scopes that the app's manifest does not list.
    static func excessScopes(_ scopes: [String]) -> Refusal {
        let names = scopes.joined(separator: " ").printable(200)
        return Refusal(
            .providerMisconfigured,
            "the organisation's provider grants more than this app may have (\(names)); add that to \"scopes\" in its manifest, or have the "
                + "provider's administrator limit tokens to the scopes of the request"
        )
    }
    static let scopesNotGranted = Refusal(
        .scopesDeclined,
        "the organisation's provider does not grant these scopes; ask for others, or have the provider's administrator allow them"
    )
    static let notTheProvider =
        Refusal(.notPermitted, "only the service shared-device-identity may report what providers have said")
    static func notCompliant(_ issuer: String) -> Refusal {
        Refusal(
            .notPermitted,
            "\(issuer) says that this device does not comply with what the organisation asks of its devices; have its administrator "
                + "correct that; users can sign in when the provider says that it complies again"
        )
    }
    static let promptNeeded = Refusal(
        .interactionRequired,
        "on this device apps may not hand over passwords; run shared-device-sign-in, or have the administrator set passwordSignIn"
    )
    static let onlyPIN = Refusal(
        .authenticationFailed,
        "a PIN without a badge counts only for the user of a locked session; show the badge, or type the password"
    )
    static let noSuchPrompt =
        Refusal(.loginExpired, "this sign-in is over, or this process has not begun it; begin again")
    static let tooManyPrompts = Refusal(
        .tooManyAttempts,
        "too many people are asked to sign in at this moment; end one of these prompts, or try again later"
    )
    static let onlyPrompts = Refusal(
        .notPermitted,
        "the prompt gets neither account nor token, and may not sign the user out; let an app ask"
    )
    static let onlyActivity = Refusal(
        .notPermitted,
        "the program that reports input gets neither account nor token, and signs no person in or out; let an app ask"
    )
    static let onlyScreen = Refusal(
        .appNotEligible,
        "only \(BrokerProtocol.screenIdentifier) may ask what the screen shows; give that program a manifest with this id"
    )
    /// After this refusal, its only one with this code, the screen program ends. After others it tries again.
    static let otherScreen = Refusal(
        .notPermitted,
        "another connection of the screen program has asked since; let one such program run per device"
    )
    static let screenHoldsNothing = Refusal(
        .notPermitted,
        "the screen program gets neither account nor token, and may not sign the user out; let an app ask"
    )
    static let promptIsAnswered =
        Refusal(.invalidRequest, "this sign-in is being completed already; wait for the response")
    static func otherMethod(_ methods: [BrokerProtocol.SignInMethod]) -> Refusal {
        let names = methods.map(\.rawValue).joined(separator: " or ")
        return Refusal(.invalidRequest, "people sign in on this device by another method; use \(names)")
    }
    static let notSharedDevice = Refusal(
        .notSharedDevice,
        "this device is not in shared mode; its administrator turns that on with \"sharedDeviceMode\": true "
            + "in the managed configuration"
    )
    static let neverConfigured = Refusal(
        .notSharedDevice,
        "this device has no valid managed configuration, so users cannot sign in; have the administrator run: "
            + "shared-device configuration check"
    )
    static func manifestUnknown(_ path: String) -> Refusal {
        Refusal(
            .notSharedDevice,
            "users cannot sign in until \(path) can be read: an app that it enrols would not clean up; have the administrator run: "
                + "shared-device configuration check"
        )
    }
    static let cleanupRequired = Refusal(
        .cleanupRequired,
        "this app has to clean up after an earlier session first; follow accountChanges and report the cleanup"
    )
    /// - Parameter apps: The ledger's keys of the apps that the sign-in waits for.
    static func cleanupPending(_ apps: [String]) -> Refusal {
        let names = AppNames(apps)
        return Refusal(
            .cleanupPending,
            "the data of the last user is not yet gone from \(apps.map { names[$0] }.joined(separator: ", ")); try again when "
                + "it is, or have the administrator see to it with: shared-device apps"
        )
    }
    static func appNotEligible(_ reason: String) -> Refusal { Refusal(.appNotEligible, reason) }
    static let tooManyNames = Refusal(
        .invalidRequest,
        "this process, or its user in this session, has used too many app identifiers; give each app one identifier, "
            + "and connect again or wait for the next session"
    )
    package static let requestAbandoned = Refusal(
        .invalidRequest,
        "the app has cancelled this request, has sent another one instead, has left the bus or no longer waits, or the "
            + "device was configured anew or signed out meanwhile; the request was dropped"
    )
    static let tenantMismatch = Refusal(
        .tenantMismatch,
        "this user belongs to another organisation than the device; use an account of the device's organisation"
    )
    /// - Parameter groups: The person's groups. If they are not known, that may be the reason.
    static func userNotAllowed(_ groups: PersonGroups = .none) -> Refusal {
        let cause =
            switch groups.flaw {
            case .elsewhere?:
                ", whose groups the provider keeps at another place than its ID token; have the provider's administrator put fewer "
                    + "groups into the claim groups, such as only those assigned to this device"
            case .malformed?:
                ", whose groups the device cannot read from the ID token; have the provider's administrator send the claim groups as a "
                    + "list of at most \(PersonGroups.most) names"
            case nil:
                "; use an allowed account, or ask the device's administrator (\"allowedUsers\" in the managed configuration)"
            }
        return Refusal(.userNotAllowed, "this device is not for this user\(cause)")
    }
    static let appNotForUser = Refusal(
        .userNotAllowed,
        "this app is not for this user; use an allowed account, or ask the device's administrator (\"allowedUsers\" in the app's "
            + "manifest)"
    )
    static let deviceNotJoined = Refusal(
        .deviceNotJoined,
        "this device has to be joined to its organisation before users can sign in; have an administrator run: "
            + "shared-device join"
    )
    static let noJoinByPage = Refusal(
        .notPermitted,
        "a device cannot be joined with the page of the organisation's provider; name the organisation with tenantIdentifier in the "
            + "managed configuration, and leave requiresJoin out"
    )
    static let notJoined =
        Refusal(.deviceNotJoined, "this device is not joined to an organisation; there is none to leave")
    static let joinedElsewhere = Refusal(
        .invalidRequest,
        "this device is joined to another organisation; have an administrator of that organisation run: shared-device leave"
    )
    static let notOrganisationAdministrator = Refusal(
        .notPermitted,
        "this user is no administrator of the device's organisation; have one of them do this, or give the role with: "
            + "shared-device user role NAME administrator"
    )
    static let notPermitted = Refusal(
        .notPermitted,
        "only this device's administrators may do this: root, the broker's own user, and users whom polkit or the "
            + "managed configuration (\"operators\") permits"
    )
    static let notEnforcing = Refusal(.notPermitted, "only the unit \(AppCleanup.enforcementUnit) enforces cleanups")
    static let notHandedOver = Refusal(
        .invalidRequest,
        "this process has no claim to the cleanup of this app for these sessions; ask again for the overdue cleanups"
    )
    static let isEnforced = Refusal(
        .brokerFailed,
        "this app was late with its cleanup, so it is being stopped and its data deleted; try again"
    )
    package static let tooManyQuestions = Refusal(
        .tooManyAttempts,
        "too many requests of this user are pending; try again when some of them have a response"
    )
    /// - Parameter pause: How long until the app may cause a request to the provider.
    static func askedTooOften(_ pause: Duration) -> Refusal {
        // Rounded up, so that an app that waits for this time has waited long enough.
        let seconds = pause.components.seconds + (pause.components.attoseconds > 0 ? 1 : 0)
        return Refusal(
            .tooManyAttempts,
            "this app has caused too many requests to the organisation's provider; try again in \(seconds) s, or keep tokens until they expire"
        )
    }
    package static func missing(_ field: String) -> Refusal {
        Refusal(.invalidRequest, "the request lacks “\(field)”; add it")
    }
    /// - Parameter flaw: The problem with the field, and how it has to be.
    package static func malformed(_ field: String, _ flaw: String) -> Refusal {
        Refusal(.invalidRequest, "“\(field)” \(flaw)")
    }
    package static func failed(_ problem: String) -> Refusal { Refusal(.brokerFailed, problem) }

    package init(_ error: IdentityError) {
        let code: SharedDeviceError.Code =
            switch error.code {
            case .invalidGrant, .accountDisabled, .accountUnknown, .interactionRequired, .authenticationFailed:
                .authenticationFailed
            case .slowDown, .busy: .tooManyAttempts
            case .invalidScope: .invalidRequest
            case .providerUnavailable: .providerUnavailable
            case .providerMisconfigured: .providerMisconfigured
            case .loginExpired: .loginExpired
            case .userCanceled: .userCanceled
            case .providerFailed: .brokerFailed
            }
        self.init(code, error.description)
    }

    /// The refusal for an error of the organisation's provider during a session, which ends then if nothing changes.
    init(_ error: IdentityError, staysSignedInUntil end: Date) {
        let refusal = Refusal(error)
        self.init(refusal.code, "\(refusal.description); the user stays signed in until \(end.formatted(.iso8601))")
    }
}
