import COpenSSL

/// A key that signs by ECDSA on P-256 with SHA-256.
public struct P256PrivateKey: Sendable {
    /// The number of points of the curve (SEC 2, section 2.4.2): a secret is less, and greater than zero.
    private static let order: [UInt8] = [
        0xFF, 0xFF, 0xFF, 0xFF, 0x00, 0x00, 0x00, 0x00, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF,
        0xBC, 0xE6, 0xFA, 0xAD, 0xA7, 0x17, 0x9E, 0x84, 0xF3, 0xB9, 0xCA, 0xC2, 0xFC, 0x63, 0x25, 0x51,
    ]

    private let handle: KeyHandle
    /// The public half: the coordinates of the point, X first, 32 bytes each.
    public let publicPoint: [UInt8]

    public init() {
        guard let handle = KeyHandle(owning: notify_center_new_p256_key()), let point = Self.publicPoint(of: handle)
        else {
            // The system has no random numbers, or no memory.
            preconditionFailure("\(CryptographyError("a key of P-256 cannot be made"))")
        }
        (self.handle, publicPoint) = (handle, point)
    }

    /// The key with this secret number, 32 bytes, big-endian; `nil` if it is zero, or not less than the order.
    public init?(secret: [UInt8]) {
        guard secret.count == Self.order.count, secret.contains(where: { $0 != 0 }),
            secret.lexicographicallyPrecedes(Self.order)
        else { return nil }
        // PKCS #8 (RFC 5208) around RFC 5915. OpenSSL computes the point.
        var der = DER.sequence(
            DER.integer([0]),
            DER.p256Algorithm,
            DER.octetString(DER.sequence(DER.integer([1]), DER.octetString(secret)))
        )
        let key = der.withUnsafeMutableBufferPointer { bytes in
            defer { OPENSSL_cleanse(bytes.baseAddress, bytes.count) }
            var position = UnsafePointer(bytes.baseAddress)
            return d2i_AutoPrivateKey(nil, &position, bytes.count)
        }
        guard let handle = KeyHandle(owning: key), let point = Self.publicPoint(of: handle) else { return nil }
        (self.handle, publicPoint) = (handle, point)
    }

    private static func publicPoint(of handle: KeyHandle) -> [UInt8]? {
        var point = [UInt8](repeating: 0, count: 65)
        var count = 0
        guard EVP_PKEY_get_octet_string_param(handle.key, "pub", &point, point.count, &count) == 1,
            count == point.count, point[0] == 0x04
        else { return nil }
        return Array(point.dropFirst())
    }

    /// The secret number, 32 bytes, big-endian. The caller wipes the copy.
    public var secret: [UInt8] {
        var number: OpaquePointer?
        defer { BN_clear_free(number) }
        var secret = [UInt8](repeating: 0, count: Self.order.count)
        precondition(
            EVP_PKEY_get_bn_param(handle.key, "priv", &number) == 1
                && BN_bn2binpad(number, &secret, Int32(secret.count)) == secret.count,
            "the secret half of a key cannot be read"
        )
        return secret
    }

    /// Returns the signature of these bytes: R and S, 32 bytes each.
    ///
    /// - Throws: ``CryptographyError`` if the system has no random numbers or no memory.
    public func signature(of bytes: [UInt8]) throws(CryptographyError) -> [UInt8] {
        guard let raw = rawSignature(of: bytes) else { throw CryptographyError("a signature cannot be made") }
        return raw
    }

    private func rawSignature(of bytes: [UInt8]) -> [UInt8]? {
        let context = EVP_MD_CTX_new()
        defer { EVP_MD_CTX_free(context) }
        var der = [UInt8](repeating: 0, count: 80)
        var count = der.count
        guard EVP_DigestSignInit(context, nil, EVP_sha256(), nil, handle.key) == 1,
            EVP_DigestSign(context, &der, &count, bytes, bytes.count) == 1
        else { return nil }
        let parsed = der.withUnsafeBufferPointer { der in
            var position = der.baseAddress
            return d2i_ECDSA_SIG(nil, &position, count)
        }
        guard let parsed else { return nil }
        defer { ECDSA_SIG_free(parsed) }
        var (r, s) = ([UInt8](repeating: 0, count: 32), [UInt8](repeating: 0, count: 32))
        guard BN_bn2binpad(ECDSA_SIG_get0_r(parsed), &r, 32) == 32, BN_bn2binpad(ECDSA_SIG_get0_s(parsed), &s, 32) == 32
        else { return nil }
        return r + s
    }
}
