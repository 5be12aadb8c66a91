import Basics
package import HTTPClient
package import Identity

/// A provider's metadata (OpenID Connect Discovery, section 3; RFC 8414, section 2). A missing feature is not an error,
/// because providers support more than they advertise.
package struct ProviderMetadata: Sendable, Hashable {
    /// In bytes of the document.
    package static let maximumSize = 256 * 1024

    package let issuer: Issuer
    package var authorizationEndpoint: HTTPAddress?
    package var tokenEndpoint: HTTPAddress
    package var keysAddress: HTTPAddress
    package var deviceAuthorizationEndpoint: HTTPAddress?
    package var userInfoEndpoint: HTTPAddress?
    package var revocationEndpoint: HTTPAddress?
    package var endSessionEndpoint: HTTPAddress?
    /// Whether each response of the authorization endpoint has `iss` (RFC 9207).
    package var answersHaveIssuer: Bool
    /// Whether the provider sends logout tokens (OpenID Connect Back-Channel Logout 1.0, section 2.1); `nil` if
    /// unknown. Some providers send them without saying so.
    package var tellsOfLogouts: Bool?
    /// Whether the client's secret goes into the body instead of the header.
    package var takesSecretInBody: Bool

    /// Combines one or both documents.
    ///
    /// - Parameter overrides: The addresses of the configuration (`oidcEndpoints`) by member name. They replace the
    ///   provider's.
    /// - Throws: `IdentityError`: `providerMisconfigured`.
    package init(
        _ documents: [ProviderDocument],
        issuer: Issuer,
        overrides: [String: HTTPAddress] = [:]
    ) throws(IdentityError) {
        // Some providers send null for a missing member.
        func member(_ name: String) -> JSONValue? {
            documents.lazy.compactMap { $0.json[name] }.first { $0 != .null }
        }
        func endpoint(_ name: String) throws(IdentityError) -> HTTPAddress? {
            if let override = overrides[name] { return override }
            guard let value = member(name) else { return nil }
            guard let address = value.string.flatMap(HTTPAddress.init) else {
                throw .misconfigured(
                    issuer,
                    "names an address as \(name) that is not an https address: \(value.string ?? "no string")"
                )
            }
            return address
        }
        func needed(_ name: String) throws(IdentityError) -> HTTPAddress {
            guard let address = try endpoint(name) else {
                throw .misconfigured(issuer, "names no \(name); name it in oidcEndpoints")
            }
            return address
        }
        self.issuer = issuer
        tokenEndpoint = try needed("token_endpoint")
        keysAddress = try needed("jwks_uri")
        authorizationEndpoint = try endpoint("authorization_endpoint")
        deviceAuthorizationEndpoint = try endpoint("device_authorization_endpoint")
        userInfoEndpoint = try endpoint("userinfo_endpoint")
        revocationEndpoint = try endpoint("revocation_endpoint")
        endSessionEndpoint = try endpoint("end_session_endpoint")
        answersHaveIssuer = member("authorization_response_iss_parameter_supported")?.boolean ?? false
        tellsOfLogouts = member("backchannel_logout_supported")?.boolean
        let methods = member("token_endpoint_auth_methods_supported")?.strings ?? []
        takesSecretInBody = !methods.contains("client_secret_basic") && methods.contains("client_secret_post")
    }
}

/// One metadata document. Its issuer is the configured one.
package struct ProviderDocument: Sendable, Hashable {
    let json: JSONValue

    /// - Throws: `IdentityError`: `providerMisconfigured` for another or a missing issuer; `providerUnavailable` if the
    ///   status is not 200 or the body is not JSON.
    package init(_ response: HTTPResponse, of issuer: Issuer) throws(IdentityError) {
        guard response.status == 200 else {
            throw .unusableNow(
                issuer,
                "status \(response.status) at \(issuer.configurationAddress.map(\.description) ?? issuer.text); see whether oidcIssuer is right",
                response.retryAfter
            )
        }
        do throws(JSONError) {
            json = try JSONValue(parsing: response.body, limits: JSONLimits(size: ProviderMetadata.maximumSize))
        } catch {
            throw .unusableNow(issuer, "its description is not JSON: \(error)")
        }
        guard let name = json["issuer"]?.string else {
            throw .unusable(issuer, JSONValue.flaw(json["issuer"], "“issuer” of its description", "a text"))
        }
        guard issuer.isNamed(name) else { throw .issuerDiffers(name, from: issuer) }
    }

    /// Whether members are missing that the second document may have.
    package var isIncomplete: Bool {
        [
            "authorization_endpoint", "token_endpoint", "jwks_uri", "device_authorization_endpoint",
            "revocation_endpoint",
        ].contains { json[$0] == nil }
    }
}

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
