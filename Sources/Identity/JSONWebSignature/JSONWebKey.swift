import Cryptography
import StrictJSON

/// A public key of a signer (RFC 7517).
package struct JSONWebKey: Sendable {
    /// `kid`, by which tokens name it.
    package let identifier: String?
    /// What tokens may be signed with it by.
    package let algorithms: Set<SignatureAlgorithm>
    private let key: PublicKey

    /// RSA keys of fewer bits are too weak; ones of more take long to check, and a stranger chose them.
    package static let rsaSizes = 2048...8192

    /// Why a member of a key set is not used.
    package enum Flaw: Error, Sendable, Hashable, CustomStringConvertible {
        /// It is for something else than signatures: another `use`, other `key_ops`, a type that is not among ours.
        case otherPurpose
        /// `kty`, `crv` and `alg` do not fit each other.
        case contradiction
        /// The size or the numbers of the key are not acceptable.
        case weak
        /// The secret part stands beside it, so that anybody can sign with it.
        case published
        /// This member is missing, or is something else than it has to be.
        case malformed(String)

        /// What is wrong, as the end of a sentence about the key.
        package var description: String {
            switch self {
            case .otherPurpose: "is for another purpose"
            case .contradiction: "has “kty”, “crv” and “alg” that do not fit each other"
            case .weak: "has a size or numbers that are not acceptable"
            case .published: "has its secret part beside it"
            case .malformed(let member):
                "has “\(member)” missing or in another form; numbers are base64url without padding"
            }
        }
    }

    /// - Throws: `Flaw` for a key that no token may be checked with.
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
        let fitting: Set<SignatureAlgorithm>
        switch json["kty"]?.string {
        case "RSA":
            (key, fitting) = (try Self.rsa(json), [.rs256, .ps256])
        case "EC":
            guard json["crv"]?.string == "P-256" else { throw .otherPurpose }
            let point = try Self.coordinate(json, "x") + Self.coordinate(json, "y")
            guard let key = PublicKey(p256: point) else { throw .weak }
            (self.key, fitting) = (key, [.es256])
        case "OKP":
            guard json["crv"]?.string == "Ed25519" else { throw .otherPurpose }
            let x = try Self.bytes(json, "x")
            guard let key = PublicKey(ed25519: x) else { throw .weak }
            (self.key, fitting) = (key, [.edDSA])
        default:
            throw .otherPurpose
        }
        guard let name = json["alg"] else {
            algorithms = fitting
            return
        }
        guard let algorithm = name.string.flatMap(SignatureAlgorithm.init), fitting.contains(algorithm) else {
            throw .contradiction
        }
        algorithms = [algorithm]
    }

    /// 32 bytes (RFC 7518, section 6.2.1.2). Some providers leave zeros in front out, as one key in 128 has them, and the number is the same without.
    private static func coordinate(_ json: JSONValue, _ name: String) throws(Flaw) -> [UInt8] {
        let bytes = try bytes(json, name)
        guard (1...32).contains(bytes.count) else { throw .weak }
        return [UInt8](repeating: 0, count: 32 - bytes.count) + bytes
    }

    private static func rsa(_ json: JSONValue) throws(Flaw) -> PublicKey {
        let (modulus, exponent) = (try bytes(json, "n"), try bytes(json, "e"))
        // Before the library computes with it. A zero in front is no part of the number.
        let digits = modulus.drop { $0 == 0 }
        let size = digits.first.map { digits.count * 8 - $0.leadingZeroBitCount } ?? 0
        guard rsaSizes.contains(size), exponent.count <= 4,
            let key = PublicKey(rsaModulus: modulus, exponent: exponent)
        else { throw .weak }
        return key
    }

    private static func bytes(_ json: JSONValue, _ name: String) throws(Flaw) -> [UInt8] {
        guard let text = json[name]?.string, let bytes = Base64URL.decode(text.utf8) else { throw .malformed(name) }
        return bytes
    }

    /// Whether the key made this signature of these bytes.
    func isValid(_ signature: [UInt8], of bytes: [UInt8], by algorithm: SignatureAlgorithm) -> Bool {
        let scheme: PublicKey.Scheme =
            switch algorithm {
            case .rs256: .rsaPKCS1
            case .ps256: .rsaPSS
            case .es256: .p256
            case .edDSA: .ed25519
            }
        return key.isValid(signature, of: bytes, by: scheme)
    }
}
