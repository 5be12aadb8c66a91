/// A request that the device's rules do not allow. Nothing has changed.
///
/// The texts name no account: any app that asks gets them, and not every app may know who is signed in.
package struct DeviceRefusal: Error, Sendable, Hashable, CustomStringConvertible {
    /// Why. A struct, so that a new reason breaks no `switch`.
    package struct Code: Sendable, Hashable, CustomStringConvertible {
        private enum Kind: String {
            case noCurrentAccount = "no_current_account"
            case currentAccountMismatch = "current_account_mismatch"
            case accountAlreadySignedIn = "account_already_signed_in"
            case notSharedDevice = "not_shared_device"
            case cleanupRequired = "cleanup_required"
            case cleanupPending = "cleanup_pending"
            case appNotEligible = "not_eligible_to_use_broker"
            case tenantMismatch = "brt_tenant_mismatch"
            case deviceNotJoined = "workplace_join_required"
            case notPermitted = "not_permitted"
            case invalidRequest = "invalid_request"
        }

        private let kind: Kind

        /// Nobody is signed in.
        package static let noCurrentAccount = Code(kind: .noCurrentAccount)
        /// Another account than the given one is signed in.
        package static let currentAccountMismatch = Code(kind: .currentAccountMismatch)
        /// Someone is signed in.
        package static let accountAlreadySignedIn = Code(kind: .accountAlreadySignedIn)
        /// The device is personal.
        package static let notSharedDevice = Code(kind: .notSharedDevice)
        /// The app owes a cleanup.
        package static let cleanupRequired = Code(kind: .cleanupRequired)
        /// Others owe a cleanup.
        package static let cleanupPending = Code(kind: .cleanupPending)
        /// The app may not take part.
        package static let appNotEligible = Code(kind: .appNotEligible)
        /// The user is of another organisation.
        package static let tenantMismatch = Code(kind: .tenantMismatch)
        /// The device is to be joined first.
        package static let deviceNotJoined = Code(kind: .deviceNotJoined)
        /// The caller is no administrator.
        package static let notPermitted = Code(kind: .notPermitted)
        /// The request asks for what is not there.
        package static let invalidRequest = Code(kind: .invalidRequest)

        /// The stable string that goes over the wire, in MSAL's words where MSAL has one.
        package var description: String { kind.rawValue }
    }

    /// Why.
    package let code: Code
    /// One sentence: what is the case, and what helps.
    package let description: String

    package static let noCurrentAccount = DeviceRefusal(
        code: .noCurrentAccount,
        description: "nobody is signed in on this device; sign in first"
    )
    package static let currentAccountMismatch = DeviceRefusal(
        code: .currentAccountMismatch,
        description: "another account is signed in on this device; ask for the current account and name that one"
    )
    package static let accountAlreadySignedIn = DeviceRefusal(
        code: .accountAlreadySignedIn,
        description: "an account is already signed in on this device; sign it out first"
    )
    package static let notSharedDevice = DeviceRefusal(
        code: .notSharedDevice,
        description:
            "this device is not in shared mode; its administrator turns that on with \"sharedDeviceMode\": true "
            + "in the managed configuration"
    )
    package static let cleanupRequired = DeviceRefusal(
        code: .cleanupRequired,
        description:
            "this app has to clean up after an earlier session first; follow accountChanges and report the cleanup"
    )
    package static func cleanupPending(_ apps: [String]) -> DeviceRefusal {
        DeviceRefusal(
            code: .cleanupPending,
            description:
                "the data of the last user is not yet gone from \(apps.joined(separator: ", ")); try again when it is, or "
                + "have the administrator see to it with: shared-device apps"
        )
    }
    package static func appNotEligible(_ reason: String) -> DeviceRefusal {
        DeviceRefusal(code: .appNotEligible, description: reason)
    }
    package static let tooManyNames = DeviceRefusal(
        code: .invalidRequest,
        description: "this process has called itself by too many names; give each app one, and connect anew"
    )
    /// For the log only: the caller is gone.
    package static let requestAbandoned = DeviceRefusal(
        code: .invalidRequest,
        description: "the app that asked has left the bus; nobody is signed in for it"
    )
    package static let tenantMismatch = DeviceRefusal(
        code: .tenantMismatch,
        description:
            "this user belongs to another organisation than the device; use an account of the device's organisation"
    )
    package static let deviceNotJoined = DeviceRefusal(
        code: .deviceNotJoined,
        description:
            "this device has to be joined to its organisation before anybody signs in; have an administrator run: "
            + "shared-device join"
    )
    package static let notJoined = DeviceRefusal(
        code: .deviceNotJoined,
        description: "this device is not joined to an organisation; there is none to leave"
    )
    package static let joinedElsewhere = DeviceRefusal(
        code: .invalidRequest,
        description:
            "this device is joined to another organisation; have an administrator of that one run: shared-device leave"
    )
    package static let notAdministrator = DeviceRefusal(
        code: .notPermitted,
        description:
            "this user is no administrator of the device's organisation; have one of them do this, or give the role with: "
            + "shared-device user role NAME administrator"
    )
    package static let notPermitted = DeviceRefusal(
        code: .notPermitted,
        description: "only root and the broker's own user may do this"
    )
}
