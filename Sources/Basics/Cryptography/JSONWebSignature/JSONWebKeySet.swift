public import Basics

/// The published public keys of a signer (RFC 7517, section 5).
public struct JSONWebKeySet: Sendable {
    /// In bytes of the text.
    public static let maximumSize = 512 * 1024
    public static let maximumCount = 100

    /// The keys that can verify tokens.
    public let keys: [JSONWebKey]
    /// The reasons why the other keys are not used, in the order of the text.
    public let unused: [JSONWebKey.Flaw]
    /// The flaws of unusable keys by key identifier.
    private let unusable: [String: JSONWebKey.Flaw]

    /// Parses a key set. An unusable key does not affect the others, because providers publish some for other purposes.
    ///
    /// - Throws: the reason why the text is not a key set, as a sentence about it.
    public init(parsing bytes: [UInt8]) throws(Problem) {
        let json: JSONValue
        do throws(JSONError) {
            json = try JSONValue(parsing: bytes, limits: JSONLimits(size: Self.maximumSize))
        } catch {
            throw Problem("it is not JSON: \(error)")
        }
        guard let members = json["keys"]?.array else { throw Problem("it has no “keys”") }
        guard members.count <= Self.maximumCount else { throw Problem("it has more than \(Self.maximumCount) keys") }
        var keys: [JSONWebKey] = []
        var unused: [JSONWebKey.Flaw] = []
        var unusable: [String: JSONWebKey.Flaw] = [:]
        for member in members {
            do throws(JSONWebKey.Flaw) {
                keys.append(try JSONWebKey(member))
            } catch {
                unused.append(error)
                if let name = member["kid"]?.string { unusable[name] = error }
            }
        }
        (self.keys, self.unused, self.unusable) = (keys, unused, unusable)
    }

    /// Verifies the token's signature with the key that the token names. If it names none, uses the only key that fits
    /// its algorithm.
    ///
    /// - Returns: The signed content.
    /// - Throws: `SignatureError`. It contains unverified parts of the token, for messages only.
    public func verify(_ token: CompactSignature) throws(SignatureError) -> VerifiedToken {
        let (algorithm, identifier) = (token.algorithm, token.keyIdentifier)
        let candidates = keys.filter { key in
            key.algorithms.contains(algorithm)
                && (identifier == nil
                    || key.identifier.map { $0.utf8.elementsEqual(identifier?.utf8 ?? "".utf8) } == true)
        }
        guard let key = candidates.first else {
            guard let identifier, let flaw = unusable[identifier] else {
                throw .unknownKey(algorithm, identifier: identifier)
            }
            throw .unusableKey(algorithm, "its key \(identifier.quoted) \(flaw)")
        }
        guard candidates.count == 1 else { throw .ambiguousKey(algorithm, identifier: identifier) }
        guard key.key.isValid(token.signature, of: token.signedBytes, by: algorithm) else {
            throw .wrongSignature(algorithm, identifier: identifier)
        }
        return VerifiedToken(type: token.type, algorithm: algorithm, claims: token.claims)
    }
}

/// The content of a token whose signature is verified. Only ``JSONWebKeySet/verify(_:)`` creates it.
public struct VerifiedToken: Sendable, Hashable {
    /// `typ` of the header.
    public let type: String?
    public let algorithm: SignatureAlgorithm
    /// Always an object.
    public let claims: JSONValue

    fileprivate init(type: String?, algorithm: SignatureAlgorithm, claims: JSONValue) {
        (self.type, self.algorithm, self.claims) = (type, algorithm, claims)
    }
}
