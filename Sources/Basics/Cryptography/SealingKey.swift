import COpenSSL

/// A key that seals bytes with AES-256-GCM (NIST SP 800-38D). Its last reference wipes its bytes. No log shows them.
///
/// Unchecked: the bytes are written in `init`, wiped in `deinit`, and only read in between.
public final class SealingKey: @unchecked Sendable {
    /// The size of a key, in bytes.
    public static let size = 32
    private static let nonceSize = 12
    private static let tagSize = 16

    private let bytes: UnsafeMutableBufferPointer<UInt8>

    /// The key of these bytes; `nil` if they are not 32. The caller wipes its copy.
    public init?(_ key: [UInt8]) {
        guard key.count == Self.size else { return nil }
        bytes = .allocate(capacity: Self.size)
        _ = bytes.initialize(from: key)
    }

    /// Derives the key from a random secret by HKDF with SHA-256 (RFC 5869).
    ///
    /// - Parameter info: The purpose. Different purposes have different keys.
    /// - Throws: ``CryptographyError`` if memory is exhausted.
    public init(secret: [UInt8], salt: [UInt8] = [], info: [UInt8]) throws(CryptographyError) {
        bytes = .allocate(capacity: Self.size)
        bytes.initialize(repeating: 0)
        guard HKDF.derive(into: bytes, secret: secret, salt: salt, info: info) else {
            throw CryptographyError("a key cannot be derived")
        }
    }

    deinit {
        OPENSSL_cleanse(bytes.baseAddress, bytes.count)
        bytes.deallocate()
    }

    /// Returns a random nonce of 12 bytes, the encrypted bytes, and the tag of 16 bytes.
    ///
    /// - Parameter context: The associated data. Opening the bytes needs the same.
    /// - Throws: ``CryptographyError`` if the system has no random numbers or no memory.
    public func seal(_ content: [UInt8], for context: [UInt8]) throws(CryptographyError) -> [UInt8] {
        var nonce = [UInt8](repeating: 0, count: Self.nonceSize)
        guard RAND_bytes(&nonce, Int32(nonce.count)) == 1, let sealed = seal(content, for: context, nonce: nonce) else {
            throw CryptographyError("bytes cannot be sealed")
        }
        return nonce + sealed
    }

    /// The nonce is a parameter for test vectors only: a nonce must not be used twice with one key.
    func seal(_ content: [UInt8], for context: [UInt8], nonce: [UInt8]) -> [UInt8]? {
        guard nonce.count == Self.nonceSize, let cipher = EVP_CIPHER_CTX_new() else { return nil }
        defer { EVP_CIPHER_CTX_free(cipher) }
        var sealed = [UInt8](repeating: 0, count: content.count)
        var tag = [UInt8](repeating: 0, count: Self.tagSize)
        var count: Int32 = 0
        guard let contentCount = Int32(exactly: content.count), let contextCount = Int32(exactly: context.count),
            EVP_EncryptInit_ex(cipher, EVP_aes_256_gcm(), nil, bytes.baseAddress, nonce) == 1,
            EVP_EncryptUpdate(cipher, nil, &count, context, contextCount) == 1,
            EVP_EncryptUpdate(cipher, &sealed, &count, content, contentCount) == 1, count == contentCount,
            EVP_EncryptFinal_ex(cipher, nil, &count) == 1,
            EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_GET_TAG, Int32(tag.count), &tag) == 1
        else { return nil }
        return sealed + tag
    }

    /// Returns the content, which the caller wipes; `nil` if ``seal(_:for:)`` did not make this with key and context.
    public func open(_ sealed: [UInt8], for context: [UInt8]) -> [UInt8]? {
        guard sealed.count >= Self.nonceSize + Self.tagSize, let cipher = EVP_CIPHER_CTX_new() else { return nil }
        defer {
            EVP_CIPHER_CTX_free(cipher)
            ERR_clear_error()
        }
        let nonce = Array(sealed.prefix(Self.nonceSize))
        let encrypted = Array(sealed.dropFirst(Self.nonceSize).dropLast(Self.tagSize))
        var tag = Array(sealed.suffix(Self.tagSize))
        var content = [UInt8](repeating: 0, count: encrypted.count)
        var count: Int32 = 0
        guard let encryptedCount = Int32(exactly: encrypted.count), let contextCount = Int32(exactly: context.count),
            EVP_DecryptInit_ex(cipher, EVP_aes_256_gcm(), nil, bytes.baseAddress, nonce) == 1,
            EVP_DecryptUpdate(cipher, nil, &count, context, contextCount) == 1,
            EVP_DecryptUpdate(cipher, &content, &count, encrypted, encryptedCount) == 1, count == encryptedCount,
            EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_SET_TAG, Int32(tag.count), &tag) == 1,
            EVP_DecryptFinal_ex(cipher, nil, &count) == 1
        else {
            // GCM decrypts before it checks the tag, so the content is wiped.
            OPENSSL_cleanse(&content, content.count)
            return nil
        }
        return content
    }
}

/// The key derivation of RFC 5869 with SHA-256.
enum HKDF {
    /// - Returns: Whether the output was written.
    static func derive(
        into output: UnsafeMutableBufferPointer<UInt8>,
        secret: [UInt8],
        salt: [UInt8],
        info: [UInt8]
    ) -> Bool {
        guard let context = EVP_PKEY_CTX_new_id(EVP_PKEY_HKDF, nil) else { return false }
        defer { EVP_PKEY_CTX_free(context) }
        var count = output.count
        return EVP_PKEY_derive_init(context) == 1 && EVP_PKEY_CTX_set_hkdf_md(context, EVP_sha256()) == 1
            && EVP_PKEY_CTX_set1_hkdf_salt(context, salt, Int32(salt.count)) == 1
            && EVP_PKEY_CTX_set1_hkdf_key(context, secret, Int32(secret.count)) == 1
            && EVP_PKEY_CTX_add1_hkdf_info(context, info, Int32(info.count)) == 1
            && EVP_PKEY_derive(context, output.baseAddress, &count) == 1 && count == output.count
    }
}
