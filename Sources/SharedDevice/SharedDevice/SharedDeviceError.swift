import FoundationEssentials
import Glibc

/// The failure of an app's request: the operation, the cause and the remedy.
public struct SharedDeviceError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The kind of failure. A struct, so that a new kind breaks no `switch`. Its text is MSAL for Android's code, if
    /// there is one.
    public struct Code: Sendable, Hashable, CustomStringConvertible {
        private enum Kind: String, CaseIterable {
            case brokerUnavailable = "broker_unavailable"
            case noCurrentAccount = "no_current_account"
            case currentAccountMismatch = "current_account_mismatch"
            case accountAlreadySignedIn = "account_already_signed_in"
            case notSharedDevice = "not_shared_device"
            case authenticationFailed = "authentication_failed"
            case tooManyAttempts = "too_many_attempts"
            case userCanceled = "user_canceled"
            case invalidRequest = "invalid_request"
            case recordUnusable = "record_unusable"
            case brokerFailed = "broker_failed"
            case cleanupRequired = "cleanup_required"
            case cleanupPending = "cleanup_pending"
            case appNotEligible = "not_eligible_to_use_broker"
            case tenantMismatch = "brt_tenant_mismatch"
            case userNotAllowed = "user_not_allowed"
            case deviceNotJoined = "workplace_join_required"
            case notPermitted = "not_permitted"
            case interactionRequired = "interaction_required"
            case providerUnavailable = "provider_unavailable"
            case providerMisconfigured = "provider_misconfigured"
            case loginExpired = "login_expired"
            case scopesDeclined = "declined_scope_error"
        }

        private let kind: Kind

        /// The broker does not run, does not respond, or cannot be reached. The device's mode is unknown.
        public static let brokerUnavailable = Code(kind: .brokerUnavailable)
        /// No account is signed in.
        public static let noCurrentAccount = Code(kind: .noCurrentAccount)
        /// The request names an account other than the current one.
        public static let currentAccountMismatch = Code(kind: .currentAccountMismatch)
        /// An account is already signed in; a shared device has one account at a time.
        public static let accountAlreadySignedIn = Code(kind: .accountAlreadySignedIn)
        /// The device is not in shared mode, or its configuration does not permit sign-ins.
        public static let notSharedDevice = Code(kind: .notSharedDevice)
        /// Name and password do not match, or the user may not sign in.
        public static let authenticationFailed = Code(kind: .authenticationFailed)
        /// There were too many wrong passwords, or too many requests at once; the description says when to try again.
        public static let tooManyAttempts = Code(kind: .tooManyAttempts)
        /// The person cancelled the prompt, or the task was cancelled.
        public static let userCanceled = Code(kind: .userCanceled)
        /// The request lacks a value or is malformed.
        public static let invalidRequest = Code(kind: .invalidRequest)
        /// The app's own record of whose data it holds cannot be read or written.
        public static let recordUnusable = Code(kind: .recordUnusable)
        /// The broker returned an internal failure.
        public static let brokerFailed = Code(kind: .brokerFailed)

        /// This app still has to clean up after an earlier session, and must report that first.
        public static let cleanupRequired = Code(kind: .cleanupRequired)
        /// Other apps still have to clean up after the previous session, and the device's policy makes the next sign-in
        /// wait for them.
        public static let cleanupPending = Code(kind: .cleanupPending)
        /// The device's administrator does not admit this app, or it is not the program that its manifest names.
        public static let appNotEligible = Code(kind: .appNotEligible)
        /// The user belongs to a different organisation than the device.
        public static let tenantMismatch = Code(kind: .tenantMismatch)
        /// The user may not sign in on this device, or may not use this app.
        public static let userNotAllowed = Code(kind: .userNotAllowed)
        /// The device has to be joined to its organisation first, by a user with the administrator's role.
        public static let deviceNotJoined = Code(kind: .deviceNotJoined)
        /// Only an administrator of the device may do this, the app's manifest lacks a scope, or a rule of the device,
        /// the organisation or the bus forbids it.
        public static let notPermitted = Code(kind: .notPermitted)
        /// The person has to sign in at a prompt: `shared-device-sign-in` shows one.
        public static let interactionRequired = Code(kind: .interactionRequired)
        /// The organisation's provider does not respond. The current account stays signed in for a while.
        public static let providerUnavailable = Code(kind: .providerUnavailable)
        /// The organisation's provider and the device's configuration do not match; an administrator has to act.
        public static let providerMisconfigured = Code(kind: .providerMisconfigured)
        /// The sign-in has expired or was ended; start a new one.
        public static let loginExpired = Code(kind: .loginExpired)
        /// The organisation's provider does not grant all requested scopes; the message names those it grants.
        public static let scopesDeclined = Code(kind: .scopesDeclined)

        /// The code's text, which also travels on the bus.
        public var description: String { kind.rawValue }

        @_spi(Extensions) public static let all: [Code] = Kind.allCases.map(Code.init(kind:))

        /// Returns the code of this text, or `nil` if this version does not know it.
        @_spi(Extensions) public init?(_ text: String) {
            guard let kind = Kind(rawValue: text) else { return nil }
            self.kind = kind
        }

        private init(kind: Kind) { self.kind = kind }
    }

    /// The kind of failure.
    public let code: Code
    /// The operation that failed.
    public let attempted: String
    /// The cause and the remedy.
    public let message: String
    /// With ``Code/scopesDeclined``: the requested scopes that the provider does not grant. Empty if the provider
    /// refused the request without naming them.
    public internal(set) var declinedScopes: [String] = []
    /// With ``Code/scopesDeclined``: the scopes that the provider grants, by its own names. A request for only these
    /// scopes is granted.
    public internal(set) var grantedScopes: [String] = []

    /// Creates an error; the texts are for people.
    public init(_ code: Code, attempted: String, message: String) {
        (self.code, self.attempted, self.message) = (code, attempted, message)
    }

    /// The operation, the cause, the remedy and the code.
    public var description: String { "could not \(attempted): \(message) [\(code)]" }
}

/// Returns the reason for a failure with a file, in the system's words. The errors of FoundationEssentials have a text
/// for people only if a program also links Foundation.
@_spi(Extensions) public func systemReason(_ error: any Error) -> String {
    let cause = (error as? CocoaError)?.underlying ?? error
    return (cause as? POSIXError).map { String(cString: strerror($0.code.rawValue)) } ?? "\(error)"
}
