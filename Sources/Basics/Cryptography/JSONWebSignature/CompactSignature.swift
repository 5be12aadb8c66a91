import Basics

/// The accepted signature algorithms (RFC 7518, RFC 8037). All others are rejected: `none`, algorithms with a shared
/// secret (HS256 …), which would turn a public key into a secret, and algorithms that no provider needs.
public enum SignatureAlgorithm: String, Sendable, Hashable, CaseIterable {
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    case rs256 = "RS256"
    /// RSASSA-PSS with SHA-256, MGF1 and a salt of 32 bytes.
    case ps256 = "PS256"
    /// ECDSA on P-256 with SHA-256. The signature is R and S, 32 bytes each.
    case es256 = "ES256"
    /// Ed25519.
    case edDSA = "EdDSA"
}

/// A JSON Web Signature in compact form (RFC 7515, section 3.1) whose payload is a set of claims (RFC 7519). The
/// content must not be trusted until ``JSONWebKeySet/verify(_:)`` has returned it.
public struct CompactSignature: Sendable {
    /// In bytes.
    public static let maximumSize = 64 * 1024

    /// Header members that supply a key, change what is signed, or require an understanding of them (RFC 8725).
    private static let refusedMembers = ["crit", "jku", "jwk", "x5u", "b64", "enc", "zip"]

    let algorithm: SignatureAlgorithm
    let keyIdentifier: String?
    let type: String?
    let claims: JSONValue
    /// The header and the payload as encoded in the token.
    public let signedBytes: [UInt8]
    let signature: [UInt8]

    /// Parses a token. Its size is checked before anything is read or copied.
    ///
    /// - Throws: `SignatureError` if the text is not a signed token, or has a form that is never accepted.
    public init(parsing text: String) throws(SignatureError) {
        guard text.utf8.count <= Self.maximumSize else { throw .tooLarge(limit: Self.maximumSize) }
        let bytes = Array(text.utf8)
        let parts = bytes.split(separator: UInt8(ascii: "."), maxSplits: 5, omittingEmptySubsequences: false)
        guard parts.count != 5 else { throw .refusedHeader("enc") }
        guard parts.count == 3 else { throw .malformed("it has \(parts.count) parts and not three") }
        let header = try Self.object(parts[0], "header", depth: 4)
        for member in Self.refusedMembers where header[member] != nil { throw .refusedHeader(member) }
        guard let name = header["alg"]?.string else { throw .malformed("its header has no “alg”") }
        guard let algorithm = SignatureAlgorithm(rawValue: name) else { throw .refusedAlgorithm(name) }
        self.algorithm = algorithm
        keyIdentifier = try Self.text(header, "kid")
        type = try Self.text(header, "typ")
        claims = try Self.object(parts[1], "payload", depth: 16)
        guard let signature = Base64URL.decode(parts[2]), !signature.isEmpty else {
            throw .malformed("its signature is no base64url")
        }
        self.signature = signature
        signedBytes = Array(bytes[..<parts[1].endIndex])
    }

    private static func object(
        _ part: ArraySlice<UInt8>,
        _ what: String,
        depth: Int
    ) throws(SignatureError) -> JSONValue {
        guard let bytes = Base64URL.decode(part) else { throw .malformed("its \(what) is no base64url") }
        let json: JSONValue
        do throws(JSONError) {
            json = try JSONValue(parsing: bytes, limits: JSONLimits(size: maximumSize, depth: depth))
        } catch {
            throw .malformed("its \(what) is not JSON: \(error)")
        }
        guard json.object != nil else { throw .malformed("its \(what) is no JSON object") }
        return json
    }

    private static func text(_ header: JSONValue, _ name: String) throws(SignatureError) -> String? {
        guard let value = header[name] else { return nil }
        guard let text = value.string else { throw .malformed("its “\(name)” is no string") }
        return text
    }
}
