/// A person's account on this device, as the broker knows it.
///
/// Two values are the same account when their `identifier`s are equal; the other fields are for display.
public struct Account: Sendable, Codable {
    /// The account's identity: object id and tenant id, joined by a dot (`uid.utid`), as MSAL's `homeAccountId`.
    public let identifier: String
    /// The name that the person signs in with, for instance `ada@example.com`.
    public let username: String
    /// The person's name for display; `nil` where the identity provider has none.
    public let displayName: String?

    /// An account with this identity and these names.
    public init(identifier: String, username: String, displayName: String? = nil) {
        self.identifier = identifier
        self.username = username
        self.displayName = displayName
    }

    /// The tenant's half of `identifier`; empty where it has none.
    public var tenantIdentifier: String {
        guard let dot = identifier.firstIndex(of: ".") else { return "" }
        return String(identifier[identifier.index(after: dot)...])
    }
}

extension Account: Hashable {
    /// Whether both are the same account: only `identifier` counts.
    public static func == (left: Account, right: Account) -> Bool { left.identifier == right.identifier }

    /// Feeds what `==` compares.
    public func hash(into hasher: inout Hasher) { hasher.combine(identifier) }
}

// MARK: The device

/// Whether this device is shared.
public enum DeviceMode: String, Sendable, Codable {
    /// Managed as a shared device: one account at a time, signed in and out for all apps.
    case shared
    /// Not managed as a shared device, by the broker's word.
    case personal
    /// Nobody can say, because the broker does not answer. Treat it as shared: what is cleaned up on a personal device comes
    /// back from the server, what is left on a shared one is somebody else's to read.
    case unknown
}

/// What the broker says of the device.
public struct DeviceInformation: Sendable {
    /// The mode.
    public let deviceMode: DeviceMode
    /// The organisation that manages the device, where its configuration names one.
    public let organization: String?
    /// Whether the device is joined to its organisation; `nil` where the broker does not answer.
    public let isJoined: Bool?
    /// Whose users alone may sign in: the tenant that the device is joined to, else the one that its configuration names; `nil` where anybody's
    /// may, or the broker does not answer.
    public let tenantIdentifier: String?
    /// The broker's version; `nil` where it does not answer.
    public let brokerVersion: String?
    /// Why the mode is unknown; `nil` where it is known.
    public let problem: SharedDeviceError?

    package init(
        deviceMode: DeviceMode,
        organization: String? = nil,
        isJoined: Bool? = nil,
        tenantIdentifier: String? = nil,
        brokerVersion: String? = nil,
        problem: SharedDeviceError? = nil
    ) {
        self.deviceMode = deviceMode
        self.organization = organization
        self.isJoined = isJoined
        self.tenantIdentifier = tenantIdentifier
        self.brokerVersion = brokerVersion
        self.problem = problem
    }
}
