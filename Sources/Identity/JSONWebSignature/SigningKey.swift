import Crypto
package import StrictJSON

/// A key that signs tokens: ECDSA on P-256. Its secret half shows itself in no log.
package struct SigningKey: Sendable, CustomStringConvertible, CustomReflectable {
    /// Algorithm of all tokens that it signs.
    package static let algorithm = SignatureAlgorithm.es256

    private let key: P256.Signing.PrivateKey
    /// The thumbprint of the public half (RFC 7638), by which tokens name the key.
    package let identifier: String

    /// A new key, of the system's random numbers.
    package init() { self.init(P256.Signing.PrivateKey()) }

    /// The key with this ``secret``; `nil` where the bytes are none.
    package init?(secret: [UInt8]) {
        guard let key = try? P256.Signing.PrivateKey(rawRepresentation: secret) else { return nil }
        self.init(key)
    }

    private init(_ key: P256.Signing.PrivateKey) {
        self.key = key
        identifier = Base64URL.encode(SHA256.hash(data: Array(Self.members(of: key).text.utf8)))
    }

    /// The secret half: 32 bytes. Whoever has them signs as this device.
    package var secret: [UInt8] { Array(key.rawRepresentation) }

    /// The public half (RFC 7517), which others check tokens with.
    package var publicKey: JSONValue {
        var members = Self.members(of: key).object ?? [:]
        members["alg"] = .string(Self.algorithm.rawValue)
        members["kid"] = .string(identifier)
        members["use"] = .string("sig")
        return .object(members)
    }

    /// Those that the thumbprint is of, and no others.
    private static func members(of key: P256.Signing.PrivateKey) -> JSONValue {
        let point = key.publicKey.rawRepresentation
        return .object([
            "kty": .string("EC"), "crv": .string("P-256"), "x": .string(Base64URL.encode(point.prefix(32))),
            "y": .string(Base64URL.encode(point.suffix(32))),
        ])
    }

    /// The claims as a token in the compact form (RFC 7515, section 3.1).
    ///
    /// - Parameter type: `typ`, so that a token of one kind does not pass for one of another.
    /// - Throws: the library's error where it cannot sign.
    package func sign(_ claims: JSONValue, type: String) throws -> String {
        let header: JSONValue = .object([
            "alg": .string(Self.algorithm.rawValue), "kid": .string(identifier), "typ": .string(type),
        ])
        let content = Base64URL.encode(header.text.utf8) + "." + Base64URL.encode(claims.text.utf8)
        let signature = try key.signature(for: Array(content.utf8))
        return content + "." + Base64URL.encode(signature.rawRepresentation)
    }

    /// The identifier alone.
    package var description: String { "SigningKey(\(identifier))" }

    /// Without the secret half.
    package var customMirror: Mirror { Mirror(self, children: ["identifier": identifier]) }
}
