import DBus
import FoundationEssentials
@_spi(Extensions) package import SharedDevice

/// The broker's response to a prompt that begins a sign-in.
package struct OpenRequest: Sendable, Hashable {
    /// The sign-in method, with its data.
    package enum Way: Sendable, Hashable {
        /// Name and password of the device's own directory.
        case password
        /// The provider's page at this address.
        case browser(address: String)
        /// The provider's page on another device.
        case deviceCode(DeviceCode)
    }

    /// The broker's name for this sign-in.
    package let name: String
    package let way: Way
    /// Whether the user may show a badge and type a PIN instead of a name and a password.
    package let takesBadge: Bool
    /// The user's time limit.
    package let lifetime: Duration

    /// The upper bound of the time limit, whatever the broker says.
    static let longestLifetime = Duration.seconds(900)

    package init(name: String, way: Way, takesBadge: Bool = false, lifetime: Duration = longestLifetime) {
        self.name = name
        self.way = way
        self.takesBadge = takesBadge
        self.lifetime = min(max(lifetime, .seconds(1)), Self.longestLifetime)
    }

    /// - Parameter now: seconds since 1970.
    package init(_ fields: BrokerProtocol.Fields, now: Double) throws(BrokerProtocol.Malformed) {
        func text(_ key: String) throws(BrokerProtocol.Malformed) -> String {
            guard let text = fields[key]?.stringValue, !text.isEmpty else { throw BrokerProtocol.Malformed(key) }
            return text
        }
        let way: Way
        switch fields["method"]?.stringValue.flatMap(BrokerProtocol.SignInMethod.init) {
        case .password: way = .password
        case .browser: way = .browser(address: try WebAddress.checked(text("authorizationURL"), "authorizationURL"))
        case .deviceCode:
            way = .deviceCode(
                DeviceCode(
                    code: try text("userCode"),
                    address: try WebAddress.checked(text("verificationURI"), "verificationURI"),
                    completeAddress: try? WebAddress.checked(text("verificationURIComplete"), "verificationURIComplete")
                )
            )
        case .badge, nil: throw BrokerProtocol.Malformed("method")
        }
        var lifetime = Self.longestLifetime
        if case .double(let end)? = fields["expiresAt"], end.isFinite {
            lifetime = .seconds(min(max(end - now, 1), lifetime / .seconds(1)))
        }
        let takesBadge = fields["badge"]?.booleanValue ?? false
        self.init(name: try text("request"), way: way, takesBadge: takesBadge, lifetime: lifetime)
    }
}

/// The code that a user types on another device, and the address to open there.
package struct DeviceCode: Sendable, Hashable {
    package let code: String
    package let address: String
    /// The address that includes the code, for a QR code; `nil` if the provider has none.
    package var completeAddress: String?

    /// The provider's host, for the user to recognise.
    package var host: String { WebAddress.host(of: address) ?? address }
}

/// Addresses that a browser is sent to.
enum WebAddress {
    /// Accepts only web pages in visible ASCII, because a browser opens other schemes too.
    static func checked(_ text: String, _ field: String) throws(BrokerProtocol.Malformed) -> String {
        guard text.utf8.count <= 8192, text.utf8.allSatisfy({ (0x21...0x7E).contains($0) }), host(of: text) != nil,
            let scheme = URL(string: text)?.scheme?.lowercased(), scheme == "https" || scheme == "http"
        else { throw BrokerProtocol.Malformed(field) }
        return text
    }

    static func host(of text: String) -> String? {
        guard let host = URL(string: text)?.host(percentEncoded: false), !host.isEmpty else { return nil }
        return host
    }
}
