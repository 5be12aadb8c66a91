import Basics
package import Identity

/// A provider's issuer identifier, which is an address (OpenID Connect Discovery, section 1.2). Compared byte for byte.
package struct Issuer: Sendable, Hashable, CustomStringConvertible {
    /// The form in the configuration and in the provider's tokens.
    package let text: String
    package let address: HTTPAddress

    /// - Returns: `nil` if the text is no `https` address, or has a query or a fragment; `http` is allowed for this
    ///   machine only.
    package init?(_ text: String) {
        guard let address = HTTPAddress(text), !address.hasQuery else { return nil }
        self.text = text
        self.address = address
    }

    package var description: String { text }

    package static func == (left: Issuer, right: Issuer) -> Bool { right.isNamed(left.text) }
    package func hash(into hasher: inout Hasher) { hasher.combine(text) }

    /// Compares byte for byte. Swift's `==` treats canonically equivalent texts as equal.
    func isNamed(_ other: String) -> Bool { isSame(text, other) }

    /// The address of the metadata, by OpenID Connect Discovery, section 4.
    package var configurationAddress: HTTPAddress? {
        HTTPAddress((text.hasSuffix("/") ? String(text.dropLast()) : text) + Self.configurationPath)
    }

    private static let configurationPath = "/.well-known/openid-configuration"

    /// The address of the metadata by RFC 8414, section 3, which puts the well-known part before the path.
    package var authorizationServerAddress: HTTPAddress? {
        let afterScheme = text.dropFirst(address.isSecure ? "https://".count : "http://".count)
        let path = afterScheme.firstIndex(of: "/").map { afterScheme[$0...] } ?? ""
        let ending = path.hasSuffix("/") ? path.dropLast() : path
        return HTTPAddress(text.dropLast(path.count) + "/.well-known/oauth-authorization-server" + ending)
    }
}

/// Compares two texts byte for byte.
func isSame(_ left: String, _ right: String) -> Bool { left.utf8.elementsEqual(right.utf8) }
