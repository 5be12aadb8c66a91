import Basics

/// The reason why a token's signature is rejected.
public enum SignatureError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The token has more bytes than the limit.
    case tooLarge(limit: Int)
    /// The token is not a JSON Web Signature in compact form, for this reason.
    case malformed(String)
    /// The token is encrypted, or its header has this member, which is never accepted.
    case refusedHeader(String)
    /// The algorithm is not a ``SignatureAlgorithm``.
    case refusedAlgorithm(String)
    /// The signer has no key with this identifier, or none that fits the algorithm.
    case unknownKey(SignatureAlgorithm, identifier: String?)
    /// The key that the token names has a form that cannot be used. The text has the key and the flaw.
    case unusableKey(SignatureAlgorithm, String)
    /// Several keys fit, and the token does not name one.
    case ambiguousKey(SignatureAlgorithm, identifier: String?)
    /// The signature is not valid for the key.
    case wrongSignature(SignatureAlgorithm, identifier: String?)

    /// Whether the signer may have changed its keys since they were read, so that reading them again may help.
    public var mayBeNewKey: Bool {
        switch self {
        case .unknownKey, .unusableKey, .ambiguousKey, .wrongSignature: true
        case .tooLarge, .malformed, .refusedHeader, .refusedAlgorithm: false
        }
    }

    /// Whether the token could not be parsed.
    public var isUnreadable: Bool {
        switch self {
        case .tooLarge, .malformed: true
        default: false
        }
    }

    /// The reason as the end of a sentence about the token. “Its keys” are those of the signer.
    public var description: String {
        switch self {
        case .tooLarge(let limit): "it has more than \(limit) bytes"
        case .malformed(let reason): "it is no signed token: \(reason)"
        case .refusedHeader(let member): "its header has \(member.quoted), which is refused"
        case .refusedAlgorithm(let name): "alg \(name.quoted), which is refused"
        case .unknownKey(let algorithm, let key): "alg \(algorithm.rawValue), \(Self.text(key)): none of its keys fits"
        case .unusableKey(let algorithm, let flaw): "alg \(algorithm.rawValue), \(flaw)"
        case .ambiguousKey(let algorithm, let key):
            "alg \(algorithm.rawValue), \(Self.text(key)): several of its keys fit"
        case .wrongSignature(let algorithm, let key): "alg \(algorithm.rawValue), \(Self.text(key))"
        }
    }

    private static func text(_ key: String?) -> String { key.map { "key \($0.quoted)" } ?? "no key named" }
}
