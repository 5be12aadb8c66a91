/// Whether this device is shared. MSAL has no third case; a mode that is not known is no value of this type, but an error.
public enum MSALDeviceMode: UInt, Sendable {
    /// Not shared, by the broker's word.
    case `default` = 0
    /// One account at a time, signed in and out for all apps.
    case shared = 1
}

/// The way to sign in that the administrator prefers.
public enum MSALPreferredAuthMethod: UInt, Sendable {
    /// None in particular. The broker's configuration knows no other.
    case notConfigured = 0
    /// A QR code and a PIN.
    case qrpin = 1
}
