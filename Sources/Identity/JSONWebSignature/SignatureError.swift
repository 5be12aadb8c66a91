import StrictJSON

/// Why a token's signature is not accepted.
package enum SignatureError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The token has more bytes than this.
    case tooLarge(limit: Int)
    /// It is no JSON Web Signature in the compact form, for this reason.
    case malformed(String)
    /// It is encrypted, or its header says what is never accepted: this member.
    case refusedHeader(String)
    /// Its algorithm is none of ``SignatureAlgorithm``.
    case refusedAlgorithm(String)
    /// None of the signer's keys is the one that the token names, or fits its algorithm.
    case unknownKey(SignatureAlgorithm, identifier: String?)
    /// The key that the token names is published in a form that cannot be used: which key, and what is wrong.
    case unusableKey(SignatureAlgorithm, String)
    /// Several keys fit, and the token does not say which.
    case ambiguousKey(SignatureAlgorithm, identifier: String?)
    /// The key did not sign this.
    case wrongSignature(SignatureAlgorithm, identifier: String?)

    /// Whether the signer may have changed its keys since they were read: then they are worth reading again.
    package var mayBeNewKey: Bool {
        switch self {
        case .unknownKey, .unusableKey, .ambiguousKey, .wrongSignature: true
        case .tooLarge, .malformed, .refusedHeader, .refusedAlgorithm: false
        }
    }

    /// Whether the token could not be taken apart.
    package var isUnreadable: Bool {
        switch self {
        case .tooLarge, .malformed: true
        default: false
        }
    }

    /// What is wrong, as the end of a sentence about the token: algorithm and key, where it says them.
    package var description: String {
        switch self {
        case .tooLarge(let limit): "it has more than \(limit) bytes"
        case .malformed(let reason): "it is no signed token: \(reason)"
        case .refusedHeader(let member): "its header has \(member.quoted), which is refused"
        case .refusedAlgorithm(let name): "alg \(name.quoted), which is refused"
        case .unknownKey(let algorithm, let key): "alg \(algorithm.rawValue), \(Self.text(key)), which is no key of its"
        case .unusableKey(let algorithm, let flaw): "alg \(algorithm.rawValue), \(flaw)"
        case .ambiguousKey(let algorithm, let key):
            "alg \(algorithm.rawValue), \(Self.text(key)), which several of its keys fit"
        case .wrongSignature(let algorithm, let key): "alg \(algorithm.rawValue), \(Self.text(key))"
        }
    }

    private static func text(_ key: String?) -> String { key.map { "key \($0.quoted)" } ?? "no key named" }
}
