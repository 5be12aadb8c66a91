import DeviceConfiguration
package import Identity
package import SharedDevice

/// A request that the broker does not carry out: the answer that the caller gets, under a code that travels on the bus.
///
/// The texts name no account: any app that asks gets them, and not every app may know who is signed in.
package struct Refusal: Error, Sendable, Hashable, CustomStringConvertible {
    /// Why.
    package let code: SharedDeviceError.Code
    /// One sentence: what is the case, and what helps.
    package let description: String

    package init(_ code: SharedDeviceError.Code, _ description: String) {
        self.code = code
        self.description = description
    }

    package static let noCurrentAccount = Refusal(
        .noCurrentAccount,
        "nobody is signed in on this device; sign in first"
    )
    package static let currentAccountMismatch = Refusal(
        .currentAccountMismatch,
        "another account is signed in on this device; ask for the current account and name that one"
    )
    package static let accountAlreadySignedIn = Refusal(
        .accountAlreadySignedIn,
        "an account is already signed in on this device; sign it out first"
    )
    package static let signInUnderWay = Refusal(
        .accountAlreadySignedIn,
        "somebody else is being signed in on this device at this moment; try again"
    )
    package static let notSharedDevice = Refusal(
        .notSharedDevice,
        "this device is not in shared mode; its administrator turns that on with \"sharedDeviceMode\": true "
            + "in the managed configuration"
    )
    package static let neverConfigured = Refusal(
        .notSharedDevice,
        "this device has no valid managed configuration, so nobody can sign in; have the administrator run: "
            + "shared-device configuration check"
    )
    package static let cleanupRequired = Refusal(
        .cleanupRequired,
        "this app has to clean up after an earlier session first; follow accountChanges and report the cleanup"
    )
    /// - Parameter apps: the ledger's keys of those that the sign-in waits for.
    package static func cleanupPending(_ apps: [String]) -> Refusal {
        let names = AppNames(apps)
        return Refusal(
            .cleanupPending,
            "the data of the last user is not yet gone from \(apps.map { names[$0] }.joined(separator: ", ")); try again when "
                + "it is, or have the administrator see to it with: shared-device apps"
        )
    }
    package static func appNotEligible(_ reason: String) -> Refusal { Refusal(.appNotEligible, reason) }
    package static let tooManyNames = Refusal(
        .invalidRequest,
        "this process has called itself by too many names; give each app one, and connect anew"
    )
    package static let requestAbandoned = Refusal(
        .invalidRequest,
        "the app that asked has cancelled the sign-in or has left the bus; nobody is signed in for it"
    )
    package static let tenantMismatch = Refusal(
        .tenantMismatch,
        "this user belongs to another organisation than the device; use an account of the device's organisation"
    )
    package static let deviceNotJoined = Refusal(
        .deviceNotJoined,
        "this device has to be joined to its organisation before anybody signs in; have an administrator run: "
            + "shared-device join"
    )
    package static let notJoined = Refusal(
        .deviceNotJoined,
        "this device is not joined to an organisation; there is none to leave"
    )
    package static let joinedElsewhere = Refusal(
        .invalidRequest,
        "this device is joined to another organisation; have an administrator of that one run: shared-device leave"
    )
    package static let notOrganisationAdministrator = Refusal(
        .notPermitted,
        "this user is no administrator of the device's organisation; have one of them do this, or give the role with: "
            + "shared-device user role NAME administrator"
    )
    package static let notPermitted = Refusal(.notPermitted, "only root and the broker's own user may do this")
    package static let tooManyQuestions = Refusal(
        .tooManyAttempts,
        "too many requests of this user wait for an answer at this moment; try again when some are answered"
    )
    package static func missing(_ field: String) -> Refusal {
        Refusal(.invalidRequest, "the request lacks “\(field)”; add it")
    }
    /// - Parameter flaw: what is wrong with the field, and what it has to be.
    package static func malformed(_ field: String, _ flaw: String) -> Refusal {
        Refusal(.invalidRequest, "“\(field)” \(flaw)")
    }
    package static func notStored(_ problem: String) -> Refusal { Refusal(.brokerFailed, problem) }
    package static func failed(_ problem: String) -> Refusal { Refusal(.brokerFailed, problem) }

    /// What the identity provider says, as the caller gets it.
    package init(_ error: IdentityError) {
        let code: SharedDeviceError.Code =
            switch error.code {
            case .invalidGrant, .accountDisabled, .accountUnknown, .interactionRequired: .authenticationFailed
            case .slowDown, .busy: .tooManyAttempts
            case .invalidScope: .invalidRequest
            default: .brokerFailed
            }
        self.init(code, error.description)
    }
}
