package import StrictJSON

/// The name of a provider, which is an address (OpenID Connect Discovery, section 1.2). Two are equal where each byte is.
package struct Issuer: Sendable, Hashable, CustomStringConvertible {
    /// As it is configured, and as the provider's tokens have it.
    package let text: String
    /// The same as an address.
    package let address: HTTPAddress

    /// - Returns: `nil` where it has a query, a fragment, or is no `https` address; `http` is for this machine only.
    package init?(_ text: String) {
        guard let address = HTTPAddress(text), !address.hasQuery else { return nil }
        self.text = text
        self.address = address
    }

    package var description: String { text }

    package static func == (left: Issuer, right: Issuer) -> Bool { right.isNamed(left.text) }
    package func hash(into hasher: inout Hasher) { hasher.combine(text) }

    /// Whether this is the text, byte for byte. Swift's comparison takes some texts of other bytes for the same.
    func isNamed(_ other: String) -> Bool { isSame(text, other) }

    /// Where the provider describes itself: by OpenID Connect Discovery, section 4.
    package var configurationAddress: HTTPAddress? {
        HTTPAddress((text.hasSuffix("/") ? String(text.dropLast()) : text) + Self.configurationPath)
    }

    private static let configurationPath = "/.well-known/openid-configuration"

    /// The same by RFC 8414, section 3, which puts the well-known part before the path.
    package var authorizationServerAddress: HTTPAddress? {
        let afterScheme = text.dropFirst(address.isSecure ? "https://".count : "http://".count)
        let path = afterScheme.firstIndex(of: "/").map { afterScheme[$0...] } ?? ""
        let ending = path.hasSuffix("/") ? path.dropLast() : path
        return HTTPAddress(text.dropLast(path.count) + "/.well-known/oauth-authorization-server" + ending)
    }
}

/// Whether both are the same bytes.
func isSame(_ left: String, _ right: String) -> Bool { left.utf8.elementsEqual(right.utf8) }
