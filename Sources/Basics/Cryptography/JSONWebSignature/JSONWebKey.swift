import Basics

/// A public key of a signer (RFC 7517).
public struct JSONWebKey: Sendable {
    /// `kid`, which identifies the key in tokens.
    public let identifier: String?
    public let algorithms: Set<SignatureAlgorithm>
    let key: PublicKey

    /// The sizes of RSA keys in bits. Smaller keys are weak; larger ones, which a stranger may choose, take long.
    public static let rsaSizes = 2048...8192

    /// The reason why a key of a key set is not used.
    public enum Flaw: Error, Sendable, Hashable, CustomStringConvertible {
        /// The key is not for signatures that this module verifies: another `use`, `key_ops` or type.
        case otherPurpose
        /// `kty`, `crv` and `alg` contradict each other.
        case contradiction
        /// The size or the numbers of the key are not acceptable.
        case weak
        /// The secret half is published, too, so anyone can sign with the key.
        case published
        /// This member is missing or malformed.
        case malformed(String)

        /// The flaw as the end of a sentence about the key.
        public var description: String {
            switch self {
            case .otherPurpose: "is for another purpose"
            case .contradiction: "has “kty”, “crv” and “alg” that do not fit each other"
            case .weak: "has a size or numbers that are not acceptable"
            case .published: "includes its secret part"
            case .malformed(let member):
                "has “\(member)” missing or in another form; numbers are base64url without padding"
            }
        }
    }

    /// - Throws: `Flaw` if the key cannot verify tokens.
    init(_ json: JSONValue) throws(Flaw) {
        guard json.object != nil else { throw .malformed("kty") }
        guard json["use"] == nil || json["use"]?.string == "sig" else { throw .otherPurpose }
        if let operations = json["key_ops"] {
            guard operations.strings?.contains("verify") == true else { throw .otherPurpose }
        }
        guard json["d"] == nil else { throw .published }
        if let identifier = json["kid"] {
            guard let text = identifier.string else { throw .malformed("kid") }
            self.identifier = text
        } else {
            identifier = nil
        }
        switch json["kty"]?.string {
        case "RSA": key = try Self.rsa(json)
        case "EC":
            guard json["crv"]?.string == "P-256" else { throw .otherPurpose }
            let point = try Self.coordinate(json, "x") + Self.coordinate(json, "y")
            guard let key = PublicKey(p256: point) else { throw .weak }
            self.key = key
        case "OKP":
            guard json["crv"]?.string == "Ed25519" else { throw .otherPurpose }
            let x = try Self.bytes(json, "x")
            guard let key = PublicKey(ed25519: x) else { throw .weak }
            self.key = key
        default: throw .otherPurpose
        }
        guard let name = json["alg"] else {
            algorithms = key.algorithms
            return
        }
        guard let algorithm = name.string.flatMap(SignatureAlgorithm.init), key.algorithms.contains(algorithm) else {
            throw .contradiction
        }
        algorithms = [algorithm]
    }

    /// A coordinate of 32 bytes (RFC 7518, section 6.2.1.2). Some providers omit leading zeros.
    private static func coordinate(_ json: JSONValue, _ name: String) throws(Flaw) -> [UInt8] {
        let bytes = try bytes(json, name)
        guard (1...32).contains(bytes.count) else { throw .weak }
        return [UInt8](repeating: 0, count: 32 - bytes.count) + bytes
    }

    private static func rsa(_ json: JSONValue) throws(Flaw) -> PublicKey {
        let (modulus, exponent) = (try bytes(json, "n"), try bytes(json, "e"))
        // Check the size before the library computes with the number. Leading zeros do not count.
        let digits = modulus.drop { $0 == 0 }
        let size = digits.first.map { digits.count * 8 - $0.leadingZeroBitCount } ?? 0
        guard rsaSizes.contains(size), exponent.count <= 4, let key = PublicKey(rsaModulus: modulus, exponent: exponent)
        else { throw .weak }
        return key
    }

    private static func bytes(_ json: JSONValue, _ name: String) throws(Flaw) -> [UInt8] {
        guard let text = json[name]?.string, let bytes = Base64URL.decode(text.utf8) else { throw .malformed(name) }
        return bytes
    }
}
