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

/// A keyed hash: HMAC with SHA-256 (RFC 2104).
public enum KeyedHash {
    public static let keySize = 32

    /// Returns random bytes for a key.
    public static func makeKey() -> [UInt8] {
        var key = [UInt8](repeating: 0, count: keySize)
        // As for a digest: it fails only if the system has no random numbers.
        precondition(RAND_bytes(&key, Int32(key.count)) == 1, "OpenSSL has no random numbers")
        return key
    }

    /// Returns the 32 bytes of the hash.
    public static func sha256(of bytes: UnsafeBufferPointer<UInt8>, key: [UInt8]) -> [UInt8] {
        var code = [UInt8](repeating: 0, count: 32)
        var count: UInt32 = 0
        precondition(
            HMAC(EVP_sha256(), key, Int32(key.count), bytes.baseAddress, bytes.count, &code, &count) != nil
                && count == code.count,
            "OpenSSL cannot compute a keyed hash: \(CryptographyError.reasonOfThisThread())"
        )
        return code
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

/// An operation failed, whatever a stranger sent: memory is exhausted, or openssl.cnf disables the algorithm.
public struct CryptographyError: Error, Sendable, Equatable, CustomStringConvertible {
    /// The failed operation, and OpenSSL's reason.
    public let description: String

    init(_ operation: String) { description = "\(operation): \(Self.reasonOfThisThread())" }

    /// The latest entry of this thread's error queue, which is emptied.
    static func reasonOfThisThread() -> String {
        var text = [CChar](repeating: 0, count: 256)
        let code = ERR_peek_last_error()
        ERR_clear_error()
        guard code != 0 else { return "OpenSSL gives no reason" }
        ERR_error_string_n(code, &text, text.count)
        return String(decoding: text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
}
