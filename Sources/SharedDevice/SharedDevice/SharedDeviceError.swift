/// Why a request of an app failed: what was attempted, what happened, and what to do about it.
public struct SharedDeviceError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The kind of failure. A struct, so that a new kind breaks no `switch`. Its text is the code of MSAL for Android, if that has one.
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
            case deviceNotJoined = "workplace_join_required"
            case notPermitted = "not_permitted"
            case interactionRequired = "interaction_required"
            case providerUnavailable = "provider_unavailable"
            case providerMisconfigured = "provider_misconfigured"
            case loginExpired = "login_expired"
            case scopesDeclined = "declined_scope_error"
        }

        private let kind: Kind

        /// The broker does not run, does not answer, or cannot be reached. The device's mode is unknown.
        public static let brokerUnavailable = Code(kind: .brokerUnavailable)
        /// Nobody is signed in.
        public static let noCurrentAccount = Code(kind: .noCurrentAccount)
        /// Another account is signed in than the request names.
        public static let currentAccountMismatch = Code(kind: .currentAccountMismatch)
        /// Somebody is signed in already; a shared device has one account at a time.
        public static let accountAlreadySignedIn = Code(kind: .accountAlreadySignedIn)
        /// The device is not in shared mode.
        public static let notSharedDevice = Code(kind: .notSharedDevice)
        /// Name and password do not fit, or the user may not sign in.
        public static let authenticationFailed = Code(kind: .authenticationFailed)
        /// Too many wrong passwords; the description says when to try again.
        public static let tooManyAttempts = Code(kind: .tooManyAttempts)
        /// The person at the prompt gave up.
        public static let userCanceled = Code(kind: .userCanceled)
        /// The request lacks something or has the wrong form.
        public static let invalidRequest = Code(kind: .invalidRequest)
        /// The app's own record of whose data it holds cannot be read or written.
        public static let recordUnusable = Code(kind: .recordUnusable)
        /// The broker answered, but with a failure of its own.
        public static let brokerFailed = Code(kind: .brokerFailed)

        /// This app still owes the cleanup of an earlier session: it has to report that first.
        public static let cleanupRequired = Code(kind: .cleanupRequired)
        /// Other apps still owe the cleanup of the previous session, and under the device's policy the next sign-in waits for them.
        public static let cleanupPending = Code(kind: .cleanupPending)
        /// The device's administrator does not let this app take part, or it is not the program that its manifest names.
        public static let appNotEligible = Code(kind: .appNotEligible)
        /// The user belongs to another organisation than the device.
        public static let tenantMismatch = Code(kind: .tenantMismatch)
        /// The device has to be joined to its organisation first, by a user with the administrator's role.
        public static let deviceNotJoined = Code(kind: .deviceNotJoined)
        /// Only an administrator of the device may do this, or the bus's policy forbids it.
        public static let notPermitted = Code(kind: .notPermitted)
        /// The person has to sign in at a prompt: `shared-device-sign-in` shows one.
        public static let interactionRequired = Code(kind: .interactionRequired)
        /// The organisation's provider does not answer. Who is signed in stays so for a while.
        public static let providerUnavailable = Code(kind: .providerUnavailable)
        /// The organisation's provider and the device's configuration do not fit each other; an administrator has to act.
        public static let providerMisconfigured = Code(kind: .providerMisconfigured)
        /// The time for this sign-in is over, or it was ended; begin a new one.
        public static let loginExpired = Code(kind: .loginExpired)
        /// The organisation's provider does not grant all scopes that were asked for; the message names those that it grants.
        public static let scopesDeclined = Code(kind: .scopesDeclined)

        /// The code's text, which also travels on the bus.
        public var description: String { kind.rawValue }

        /// All codes that this version knows.
        package static let all: [Code] = Kind.allCases.map(Code.init(kind:))

        /// The code of this text; `nil` if this version does not know it.
        package init?(_ text: String) {
            guard let kind = Kind(rawValue: text) else { return nil }
            self.kind = kind
        }

        private init(kind: Kind) { self.kind = kind }
    }

    /// The kind of failure.
    public let code: Code
    /// What was attempted.
    public let attempted: String
    /// What happened, and what helps.
    public let message: String
    /// With ``Code/scopesDeclined``: those of the scopes that were asked for which the provider does not grant. Empty where it has refused all of them
    /// without a word of which.
    public internal(set) var declinedScopes: [String] = []
    /// With ``Code/scopesDeclined``: what the provider grants, by its own names. A request for these alone is granted.
    public internal(set) var grantedScopes: [String] = []

    /// An error of this code; the texts are for people.
    public init(_ code: Code, attempted: String, message: String) {
        self.code = code
        self.attempted = attempted
        self.message = message
    }

    /// One line.
    public var description: String { "could not \(attempted): \(message) [\(code)]" }
}
