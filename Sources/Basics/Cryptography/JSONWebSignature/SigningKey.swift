public import Basics

/// A key that signs tokens with ECDSA on P-256. Its description hides the secret half.
public struct SigningKey: Sendable, CustomStringConvertible, CustomReflectable {
    public static let algorithm = SignatureAlgorithm.es256

    private let key: P256PrivateKey
    /// The thumbprint of the public half (RFC 7638), which identifies the key in tokens.
    public let identifier: String

    public init() { self.init(P256PrivateKey()) }

    /// The key with this ``secret``; `nil` if the bytes are not a secret half.
    public init?(secret: [UInt8]) {
        guard let key = P256PrivateKey(secret: secret) else { return nil }
        self.init(key)
    }

    private init(_ key: P256PrivateKey) {
        self.key = key
        identifier = Base64URL.encode(Digest.sha256.hash(Array(Self.members(of: key).text.utf8)))
    }

    /// The secret half: 32 bytes, with which tokens of this device are signed.
    public var secret: [UInt8] { key.secret }

    /// The public half (RFC 7517), with which tokens are verified.
    public var publicKey: JSONValue {
        var members = Self.members(of: key).object ?? [:]
        members["alg"] = .string(Self.algorithm.rawValue)
        members["kid"] = .string(identifier)
        members["use"] = .string("sig")
        return .object(members)
    }

    /// The members that the thumbprint is computed from.
    private static func members(of key: P256PrivateKey) -> JSONValue {
        let point = key.publicPoint
        return .object([
            "kty": .string("EC"), "crv": .string("P-256"), "x": .string(Base64URL.encode(point.prefix(32))),
            "y": .string(Base64URL.encode(point.suffix(32))),
        ])
    }

    /// Signs the claims, and returns the token in compact form (RFC 7515, section 3.1).
    ///
    /// - Parameter type: `typ`, which keeps a token of one kind from passing for another kind.
    /// - Throws: ``CryptographyError`` if the system has no random numbers or no memory.
    public func sign(_ claims: JSONValue, type: String) throws(CryptographyError) -> String {
        let header: JSONValue = .object([
            "alg": .string(Self.algorithm.rawValue), "kid": .string(identifier), "typ": .string(type),
        ])
        let content = Base64URL.encode(header.text.utf8) + "." + Base64URL.encode(claims.text.utf8)
        return content + "." + Base64URL.encode(try key.signature(of: Array(content.utf8)))
    }

    public var description: String { "SigningKey(\(identifier))" }

    /// Hides the secret half.
    public var customMirror: Mirror { Mirror(self, children: ["identifier": identifier]) }
}
