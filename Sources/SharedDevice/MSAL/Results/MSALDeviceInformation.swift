import SharedDevice

/// What the broker says of the device.
public final class MSALDeviceInformation: Sendable {
    /// Whether the device is shared.
    public let deviceMode: MSALDeviceMode
    /// Whether the broker, which is what the SSO extension is on iOS, answered.
    public let hasAADSSOExtension: Bool
    private let details: [String: String]

    init(_ mode: MSALDeviceMode, answer: DeviceInformation?) {
        deviceMode = mode
        hasAADSSOExtension = answer != nil
        var details: [String: String] = [:]
        details["organization"] = answer?.organization
        details["brokerVersion"] = answer?.brokerVersion
        self.details = details
    }

    /// ``MSALPreferredAuthMethod/notConfigured``.
    public var configuredPreferredAuthMethod: MSALPreferredAuthMethod { .notConfigured }

    /// Strings: `organization`, where the configuration names one, and `brokerVersion`.
    public var extraDeviceInformation: [AnyHashable: Any] { details }
}
