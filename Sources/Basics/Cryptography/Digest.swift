import COpenSSL

/// A hash function (FIPS 180-4).
public enum Digest: Sendable {
    /// For names only (UUIDs of version 5): collisions are known.
    case sha1
    case sha256
    case sha512

    /// Returns the digest of the bytes: 20, 32 or 64 bytes.
    public func hash(_ bytes: [UInt8]) -> [UInt8] {
        var digest = [UInt8](repeating: 0, count: Int(EVP_MAX_MD_SIZE))
        var count: UInt32 = 0
        // A digest fails only if memory is exhausted or the administrator has disabled the algorithm in openssl.cnf.
        precondition(
            EVP_Digest(bytes, bytes.count, &digest, &count, algorithm, nil) == 1,
            "OpenSSL cannot compute a digest (\(self)): \(CryptographyError.reasonOfThisThread())"
        )
        return Array(digest.prefix(Int(count)))
    }

    private var algorithm: OpaquePointer? {
        switch self {
        case .sha1: EVP_sha1()
        case .sha256: EVP_sha256()
        case .sha512: EVP_sha512()
        }
    }
}

public enum ConstantTime {
    /// Returns whether both are the same bytes, in a time that depends on their number only.
    public static func areEqual(_ left: some Collection<UInt8>, _ right: some Collection<UInt8>) -> Bool {
        guard left.count == right.count else { return false }
        let areEqual = left.withContiguousStorageIfAvailable { left in
            right.withContiguousStorageIfAvailable { right in
                CRYPTO_memcmp(left.baseAddress, right.baseAddress, left.count) == 0
            }
        }
        if let areEqual = areEqual ?? nil { return areEqual }
        // Without contiguous storage the bytes are copied, so that this comparison, too, takes constant time.
        return CRYPTO_memcmp(Array(left), Array(right), left.count) == 0
    }
}
