import COpenSSL

/// The public key of a signer, who may be a stranger.
public struct PublicKey: Sendable {
    /// The algorithms that the key can verify.
    public let algorithms: Set<SignatureAlgorithm>
    private let handle: KeyHandle
    /// The only length of a signature, in bytes.
    private let signatureSize: Int

    /// The RSA key with this modulus and exponent, big-endian; `nil` if these numbers are not a key.
    ///
    /// OpenSSL would take any numbers. RSA has no key with an even number among them, or with an exponent below 3.
    public init?(rsaModulus modulus: [UInt8], exponent: [UInt8]) {
        let (modulus, exponent) = (modulus.drop { $0 == 0 }, exponent.drop { $0 == 0 })
        guard modulus.last.map({ $0 & 1 }) == 1, exponent.last.map({ $0 & 1 }) == 1, exponent != [1],
            let handle = KeyHandle(
                publicKey: DER.sequence(
                    DER.sequence(DER.rsaEncryption, DER.null),
                    DER.bitString(DER.sequence(DER.integer(modulus), DER.integer(exponent)))
                )
            )
        else { return nil }
        (algorithms, self.handle, signatureSize) = ([.rs256, .ps256], handle, modulus.count)
    }

    /// The point of P-256 with these coordinates, X first, 32 bytes each; `nil` if it is not on the curve.
    public init?(p256 point: [UInt8]) {
        guard point.count == 64,
            let handle = KeyHandle(publicKey: DER.sequence(DER.p256Algorithm, DER.bitString([0x04] + point)))
        else { return nil }
        (algorithms, self.handle, signatureSize) = ([.es256], handle, 64)
    }

    /// The Ed25519 key of these 32 bytes. Whether they are a point is decided when a signature is verified.
    public init?(ed25519 bytes: [UInt8]) {
        guard bytes.count == 32,
            let handle = KeyHandle(owning: EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nil, bytes, bytes.count))
        else { return nil }
        (algorithms, self.handle, signatureSize) = ([.edDSA], handle, 64)
    }

    /// Returns whether the key made this signature of these bytes; `false` also if the key has another algorithm.
    public func isValid(_ signature: [UInt8], of bytes: [UInt8], by algorithm: SignatureAlgorithm) -> Bool {
        // OpenSSL would take a PSS signature without its leading zeros for the same signature.
        guard algorithms.contains(algorithm), signature.count == signatureSize, let context = EVP_MD_CTX_new() else {
            return false
        }
        defer {
            EVP_MD_CTX_free(context)
            ERR_clear_error()
        }
        var keyContext: OpaquePointer?
        let digest = algorithm == .edDSA ? nil : EVP_sha256()
        guard EVP_DigestVerifyInit(context, &keyContext, digest, nil, handle.key) == 1 else { return false }
        var signature = signature
        switch algorithm {
        case .rs256: guard EVP_PKEY_CTX_set_rsa_padding(keyContext, RSA_PKCS1_PADDING) == 1 else { return false }
        case .ps256:
            guard EVP_PKEY_CTX_set_rsa_padding(keyContext, RSA_PKCS1_PSS_PADDING) == 1,
                EVP_PKEY_CTX_set_rsa_pss_saltlen(keyContext, RSA_PSS_SALTLEN_DIGEST) == 1
            else { return false }
        case .es256: signature = DER.sequence(DER.integer(signature.prefix(32)), DER.integer(signature.suffix(32)))
        case .edDSA: break
        }
        return EVP_DigestVerify(context, signature, signature.count, bytes, bytes.count) == 1
    }
}

/// An `EVP_PKEY`. Its last reference frees it, and wipes a secret half.
///
/// Unchecked: nothing changes a key after it is made, and OpenSSL synchronizes its reference count and its caches.
final class KeyHandle: @unchecked Sendable {
    let key: OpaquePointer

    /// Takes the key over; `nil` if OpenSSL made none.
    init?(owning key: OpaquePointer?) {
        guard let key else {
            ERR_clear_error()
            return nil
        }
        self.key = key
    }

    deinit { EVP_PKEY_free(key) }

    /// The key of a `SubjectPublicKeyInfo` (RFC 5280, section 4.1.2.7).
    convenience init?(publicKey der: [UInt8]) {
        self.init(
            owning: der.withUnsafeBufferPointer { bytes in
                var position = bytes.baseAddress
                return d2i_PUBKEY(nil, &position, bytes.count)
            }
        )
    }
}

/// The forms of DER (X.690) in which OpenSSL takes keys and signatures.
enum DER {
    static func sequence(_ contents: [UInt8]...) -> [UInt8] { element(0x30, contents.flatMap { $0 }) }

    /// An unsigned number, big-endian.
    static func integer(_ digits: some Collection<UInt8>) -> [UInt8] {
        let significant = Array(digits.drop { $0 == 0 })
        // The highest bit would be the sign.
        let needsZero = significant.first.map { $0 & 0x80 != 0 } ?? true
        return element(0x02, (needsZero ? [0] : []) + significant)
    }

    static func bitString(_ bytes: [UInt8]) -> [UInt8] { element(0x03, [0] + bytes) }

    static func octetString(_ bytes: [UInt8]) -> [UInt8] { element(0x04, bytes) }

    static let null: [UInt8] = [0x05, 0x00]

    /// 1.2.840.113549.1.1.1 (RFC 8017, appendix C).
    static let rsaEncryption: [UInt8] = [0x06, 0x09, 0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x01, 0x01]

    /// id-ecPublicKey with prime256v1 (RFC 5480, section 2.1.1).
    static let p256Algorithm = sequence(
        [0x06, 0x07, 0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x02, 0x01],
        [0x06, 0x08, 0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x03, 0x01, 0x07]
    )

    private static func element(_ tag: UInt8, _ content: [UInt8]) -> [UInt8] {
        var length = [UInt8(truncatingIfNeeded: content.count)]
        if content.count > 0x7F {
            length = withUnsafeBytes(of: UInt32(content.count).bigEndian) { Array($0.drop { $0 == 0 }) }
            length.insert(0x80 | UInt8(length.count), at: 0)
        }
        return [tag] + length + content
    }
}
