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
