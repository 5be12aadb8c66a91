package import StrictJSON

/// The public keys of a signer, as it publishes them (RFC 7517, section 5).
package struct JSONWebKeySet: Sendable {
    /// In bytes, of the text.
    package static let maximumSize = 512 * 1024
    package static let maximumCount = 100

    /// The keys that tokens may be checked with.
    package let keys: [JSONWebKey]
    /// Why the others are not used, in the order of the text.
    package let unused: [JSONWebKey.Flaw]
    /// Why keys that are there by name cannot be used.
    private let unusable: [String: JSONWebKey.Flaw]

    /// Why a text is no key set.
    package enum Flaw: Error, Sendable, Hashable, CustomStringConvertible {
        case json(JSONError)
        /// It has no array `keys`.
        case noKeys
        case tooMany

        package var description: String {
            switch self {
            case .json(let error): "it is not JSON: \(error)"
            case .noKeys: "it has no “keys”"
            case .tooMany: "it has more than \(maximumCount) keys"
            }
        }
    }

    /// The key set with this text. A key that cannot be used does no harm to the others: providers publish some for other purposes.
    ///
    /// - Throws: `Flaw` for a text that is no key set.
    package init(parsing bytes: [UInt8]) throws(Flaw) {
        let json: JSONValue
        do throws(JSONError) {
            json = try JSONValue(parsing: bytes, limits: JSONLimits(size: Self.maximumSize))
        } catch {
            throw .json(error)
        }
        guard let members = json["keys"]?.array else { throw .noKeys }
        guard members.count <= Self.maximumCount else { throw .tooMany }
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

    /// Checks the token's signature with the key that it names; with none named, with the only key that fits its algorithm.
    ///
    /// - Returns: what was signed.
    /// - Throws: `SignatureError`. What it says of the token is the token's own word, and for messages only.
    package func verify(_ token: CompactSignature) throws(SignatureError) -> VerifiedToken {
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
        guard key.isValid(token.signature, of: token.signedBytes, by: algorithm) else {
            throw .wrongSignature(algorithm, identifier: identifier)
        }
        return VerifiedToken(type: token.type, algorithm: algorithm, claims: token.claims)
    }
}

/// The content of a token whose signature was checked: there is no other way to one.
package struct VerifiedToken: Sendable, Hashable {
    /// `typ` of the header.
    package let type: String?
    package let algorithm: SignatureAlgorithm
    /// An object.
    package let claims: JSONValue

    fileprivate init(type: String?, algorithm: SignatureAlgorithm, claims: JSONValue) {
        self.type = type
        self.algorithm = algorithm
        self.claims = claims
    }
}
