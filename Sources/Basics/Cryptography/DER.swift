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
