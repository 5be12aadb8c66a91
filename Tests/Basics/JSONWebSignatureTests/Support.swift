import Basics
import COpenSSL
import Cryptography

/// A signer of tokens with one key of each kind.
struct Signer {
    private let rsa = OpenSSLKey(EVP_PKEY_RSA)
    var p256 = P256PrivateKey()
    private let ed25519 = OpenSSLKey(EVP_PKEY_ED25519)

    /// Shared, because making an RSA key is slow.
    static let shared = Signer()

    // MARK: Keys

    /// The JSON members of the public key for an algorithm, without `kid`, `use` and `alg`.
    func key(_ algorithm: String) -> [String: String] {
        switch algorithm {
        case "ES256":
            let point = p256.publicPoint
            return [
                "kty": "EC", "crv": "P-256", "x": Base64URL.encode(point[..<32]), "y": Base64URL.encode(point[32...]),
            ]
        case "EdDSA":
            return ["kty": "OKP", "crv": "Ed25519", "x": Base64URL.encode(ed25519.octets("pub"))]
        default:
            return ["kty": "RSA", "n": Base64URL.encode(rsa.number("n")), "e": Base64URL.encode(rsa.number("e"))]
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
        return signed + "." + Base64URL.encode(try signature(of: Array(signed.utf8), alg))
    }

    func signature(of bytes: [UInt8], _ algorithm: String) throws -> [UInt8] {
        switch algorithm {
        case "RS256": rsa.signature(of: bytes, digest: EVP_sha256(), padding: RSA_PKCS1_PADDING)
        case "PS256": rsa.signature(of: bytes, digest: EVP_sha256(), padding: RSA_PKCS1_PSS_PADDING)
        case "EdDSA": ed25519.signature(of: bytes, digest: nil)
        // A forgery that uses the public key as the shared secret.
        case "HS256": hmac(of: bytes, key: Array("-----BEGIN PUBLIC KEY-----".utf8) + rsa.number("n"))
        default: try p256.signature(of: bytes)
        }
    }

    private func hmac(of bytes: [UInt8], key: [UInt8]) -> [UInt8] {
        var (code, count) = ([UInt8](repeating: 0, count: 32), UInt32(0))
        HMAC(EVP_sha256(), key, Int32(key.count), bytes, bytes.count, &code, &count)
        return code
    }
}

/// A private key of a kind that the product only verifies with.
///
/// Unchecked: the key is made in `init` and not changed afterwards.
private final class OpenSSLKey: @unchecked Sendable {
    private let key: OpaquePointer?

    init(_ kind: Int32) {
        let context = EVP_PKEY_CTX_new_id(kind, nil)
        defer { EVP_PKEY_CTX_free(context) }
        var key: OpaquePointer?
        precondition(EVP_PKEY_keygen_init(context) == 1 && EVP_PKEY_keygen(context, &key) == 1, "no key can be made")
        self.key = key
    }

    deinit { EVP_PKEY_free(key) }

    func octets(_ name: String) -> [UInt8] {
        var (bytes, count) = ([UInt8](repeating: 0, count: 1024), 0)
        precondition(EVP_PKEY_get_octet_string_param(key, name, &bytes, bytes.count, &count) == 1)
        return Array(bytes.prefix(count))
    }

    func number(_ name: String) -> [UInt8] {
        var number: OpaquePointer?
        defer { BN_free(number) }
        precondition(EVP_PKEY_get_bn_param(key, name, &number) == 1)
        var bytes = [UInt8](repeating: 0, count: 1024)
        let count = BN_bn2bin(number, &bytes)
        return Array(bytes.prefix(Int(count)))
    }

    func signature(of bytes: [UInt8], digest: OpaquePointer?, padding: Int32? = nil) -> [UInt8] {
        let context = EVP_MD_CTX_new()
        defer { EVP_MD_CTX_free(context) }
        var (signature, count) = ([UInt8](repeating: 0, count: 1024), 1024)
        var keyContext: OpaquePointer?
        precondition(EVP_DigestSignInit(context, &keyContext, digest, nil, key) == 1)
        if let padding { precondition(EVP_PKEY_CTX_set_rsa_padding(keyContext, padding) == 1) }
        if padding == RSA_PKCS1_PSS_PADDING {
            precondition(EVP_PKEY_CTX_set_rsa_pss_saltlen(keyContext, RSA_PSS_SALTLEN_DIGEST) == 1)
        }
        precondition(EVP_DigestSign(context, &signature, &count, bytes, bytes.count) == 1)
        return Array(signature.prefix(count))
    }
}

func keySet(_ keys: [String: String]...) throws -> JSONWebKeySet {
    let members = keys.map { key in "{" + key.map { #""\#($0)":"\#($1)""# }.joined(separator: ",") + "}" }
    return try JSONWebKeySet(parsing: Array("{\"keys\":[\(members.joined(separator: ","))]}".utf8))
}

extension [String: String] {
    func with(_ name: String, _ value: String) -> [String: String] { merging([name: value]) { $1 } }
}

/// The error of verifying a token; `nil` if it is accepted.
func refusal(of token: String, by keys: JSONWebKeySet) -> SignatureError? {
    do throws(SignatureError) {
        _ = try keys.verify(CompactSignature(parsing: token))
        return nil
    } catch {
        return error
    }
}
