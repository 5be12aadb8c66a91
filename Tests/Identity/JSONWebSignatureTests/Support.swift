import Crypto
import CryptoExtras
import FoundationEssentials
import JSONWebSignature
import StrictJSON

/// A signer of tokens with a key of each kind.
struct Signer {
    let rsa: _RSA.Signing.PrivateKey
    var p256 = P256.Signing.PrivateKey()
    let ed25519 = Curve25519.Signing.PrivateKey()

    /// Made once: an RSA key takes seconds in a debug build.
    static let shared = Signer()
    static let stranger = Signer()

    private init() {
        guard let key = try? _RSA.Signing.PrivateKey(keySize: .bits2048) else { fatalError("no RSA key can be made") }
        rsa = key
    }

    // MARK: Keys

    /// The members of the public key for an algorithm, as JSON, without `kid`, `use` and `alg`.
    func key(_ algorithm: String) -> [String: String] {
        switch algorithm {
        case "ES256":
            let point = [UInt8](p256.publicKey.rawRepresentation)
            return [
                "kty": "EC", "crv": "P-256", "x": Base64URL.encode(point[..<32]), "y": Base64URL.encode(point[32...]),
            ]
        case "EdDSA":
            return ["kty": "OKP", "crv": "Ed25519", "x": Base64URL.encode(ed25519.publicKey.rawRepresentation)]
        default:
            guard let parts = try? rsa.publicKey.getKeyPrimitives() else { fatalError("no RSA key") }
            return [
                "kty": "RSA", "n": Base64URL.encode(parts.modulus), "e": Base64URL.encode(parts.publicExponent),
            ]
        }
    }

    // MARK: Tokens

    func token(
        _ claims: String = #"{"sub":"ada"}"#,
        alg: String = "ES256",
        kid: String? = "1",
        header: String? = nil
    ) throws -> String {
        let header = header ?? #"{"alg":"\#(alg)"\#(kid.map { #","kid":"\#($0)""# } ?? "")}"#
        let signed = Base64URL.encode(header.utf8) + "." + Base64URL.encode(claims.utf8)
        return signed + "." + Base64URL.encode(try signature(of: Data(signed.utf8), alg))
    }

    func signature(of bytes: Data, _ algorithm: String) throws -> Data {
        switch algorithm {
        case "RS256": try rsa.signature(for: bytes, padding: .insecurePKCS1v1_5).rawRepresentation
        case "PS256": try rsa.signature(for: bytes, padding: .PSS).rawRepresentation
        case "EdDSA": try ed25519.signature(for: bytes)
        case "HS256":
            // As one forges it: the public key, which everybody has, as the shared secret.
            Data(
                HMAC<SHA256>.authenticationCode(
                    for: bytes,
                    using: SymmetricKey(data: Data(rsa.publicKey.pemRepresentation.utf8))
                )
            )
        default: try p256.signature(for: bytes).rawRepresentation
        }
    }
}

/// The set of these keys.
func keySet(_ keys: [String: String]...) throws -> JSONWebKeySet {
    let members = keys.map { key in "{" + key.map { #""\#($0)":"\#($1)""# }.joined(separator: ",") + "}" }
    return try JSONWebKeySet(parsing: Array("{\"keys\":[\(members.joined(separator: ","))]}".utf8))
}

extension [String: String] {
    func with(_ name: String, _ value: String) -> [String: String] { merging([name: value]) { $1 } }
}

/// What the check of a token throws; `nil` where it is accepted.
func refusal(of token: String, by keys: JSONWebKeySet) -> SignatureError? {
    do throws(SignatureError) {
        _ = try keys.verify(CompactSignature(parsing: token))
        return nil
    } catch {
        return error
    }
}
