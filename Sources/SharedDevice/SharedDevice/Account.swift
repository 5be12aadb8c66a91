import DBus

/// A person's account on this device, as the broker knows it.
///
/// Two values are the same account when their `identifier`s are equal; the other fields are for display.
public struct Account: Sendable, Codable {
    /// The account's identity: object id and tenant id, joined by a dot (`uid.utid`), as MSAL's `homeAccountId`.
    public let identifier: String
    /// The name that the person signs in with, for instance `ada@example.com`.
    public let username: String
    /// The person's name for display; `nil` if the identity provider has none.
    public let displayName: String?

    /// Creates an account, for instance for tests. Nothing checks that the broker knows it.
    public init(identifier: String, username: String, displayName: String? = nil) {
        (self.identifier, self.username, self.displayName) = (identifier, username, displayName)
    }

    /// The tenant part of `identifier`; empty if there is none.
    public var tenantIdentifier: String {
        identifier.firstIndex(of: ".").map { String(identifier[$0...].dropFirst()) } ?? ""
    }
}

extension Account: Hashable {
    /// Two values are the same account if their `identifier`s are equal.
    public static func == (left: Account, right: Account) -> Bool { left.identifier == right.identifier }

    /// Hashes the `identifier`.
    public func hash(into hasher: inout Hasher) { hasher.combine(identifier) }
}

// MARK: The device

/// Whether this device is shared.
public enum DeviceMode: String, Sendable, Codable {
    /// Managed as a shared device: one account at a time, signed in and out for all apps.
    case shared
    /// Not managed as a shared device, according to the broker.
    case personal
    /// Unknown, because the broker does not respond. Treat the device as shared: data deleted on a personal device
    /// comes back from the server, but data left on a shared device can be read by another person.
    case unknown
}

/// The broker's information about the device.
public struct DeviceInformation: Sendable {
    /// Whether the device is shared.
    public let deviceMode: DeviceMode
    /// The organisation that manages the device; `nil` if its configuration names none.
    public let organization: String?
    /// Whether the device is joined to its organisation; `nil` if the broker does not respond.
    public let isJoined: Bool?
    /// The tenant whose users may sign in: the tenant that the device is joined to or, for a device that is not joined,
    /// the tenant in its configuration. `nil` if users of any tenant may sign in, or the broker does not respond.
    public let tenantIdentifier: String?
    /// Whether people can sign in with a badge and a PIN; `false` if the broker does not respond.
    public let takesBadges: Bool
    /// The broker's version; `nil` if the broker does not respond.
    public let brokerVersion: String?
    /// When the present session ends by itself; `nil` if no account is signed in, if the session does not end by
    /// itself, or if the broker does not respond. ``SharedDeviceApplication/sessionWarnings`` tells when it is near.
    public let sessionEnd: SessionEnd?
    /// Whether the screen is locked, and waits for the person of the open session.
    public let isLocked: Bool
    /// Why the mode is unknown; `nil` if it is known.
    public let problem: SharedDeviceError?

    /// - Parameter fields: the broker's response; empty if there is none.
    init(_ fields: BrokerProtocol.Fields, problem: SharedDeviceError? = nil) {
        deviceMode = fields["mode"]?.stringValue.flatMap(DeviceMode.init) ?? .unknown
        organization = fields["organization"]?.stringValue
        isJoined = fields["joined"]?.booleanValue
        tenantIdentifier = fields["tenant"]?.stringValue
        let badge = BrokerProtocol.SignInMethod.badge.rawValue
        takesBadges = fields["signInMethods"]?.stringsValue?.contains(badge) ?? false
        brokerVersion = fields["brokerVersion"]?.stringValue
        sessionEnd = SessionEnd(fields)
        isLocked = fields["locked"]?.booleanValue ?? false
        self.problem = problem
    }
}
