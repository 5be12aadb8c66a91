import Foundation
import Testing

@testable import Cryptography

@Suite("Cryptography")
struct CryptographyTests {
    @Test("published test vectors have their expected result", arguments: try Vector.read())
    func vectors(vector: Vector) throws {
        guard vector.scheme == "gcm" else {
            #expect(vector.accepts(vector.result) == vector.isValid)
            return
        }
        let key = try #require(SealingKey(vector.key))
        #expect((key.open(vector.result, for: vector.context) == vector.message) == vector.isValid)
        if vector.isValid {
            let sealed = key.seal(vector.message, for: vector.context, nonce: Array(vector.result.prefix(12)))
            #expect(sealed == Array(vector.result.dropFirst(12)))
        }
    }

    @Test("a thread can compute a digest while the process exits")
    func exitingProcess() async {
        await #expect(processExitsWith: .success) {
            // It runs after the handler that OpenSSL would register at its first digest.
            atexit { _ = Digest.sha256.hash([1]) }
            _ = Digest.sha256.hash([1])
        }
    }

    @Test("a key verifies only signatures of its own schemes and of their length")
    func otherSchemes() throws {
        let rsa = try #require(try Vector.read().first { $0.scheme == "rsaPSS" && $0.isValid })
        let key = try #require(PublicKey(rsaModulus: rsa.key, exponent: rsa.exponent))
        for scheme in [SignatureAlgorithm.rs256, .es256, .edDSA] {
            #expect(!key.isValid(rsa.result, of: rsa.message, by: scheme))
        }
        let signer = P256PrivateKey()
        let (point, signature) = (try #require(PublicKey(p256: signer.publicPoint)), try signer.signature(of: [1, 2]))
        #expect(point.isValid(signature, of: [1, 2], by: .es256))
        for scheme in [SignatureAlgorithm.rs256, .ps256, .edDSA] {
            #expect(!point.isValid(signature, of: [1, 2], by: scheme))
        }
        for vector in try Vector.read() where vector.isValid && vector.scheme != "gcm" {
            let whole = vector.result
            for other in [whole + [0], [0] + whole, Array(whole.dropFirst()), Array(whole.dropLast()), []] {
                #expect(!vector.accepts(other), "\(vector)")
            }
        }
        // This vector was made for this test. OpenSSL itself would accept the whole without its leading zero.
        let short = try #require(try Vector.read().first { $0.name == "short-PSS" })
        #expect(short.result.first == 0 && short.accepts(short.result))
        #expect(!short.accepts(Array(short.result.dropFirst())))
    }

    @Test("even RSA numbers, small exponents, other lengths and points off the curve fail")
    func invalidKeys() throws {
        let modulus = try #require(try Vector.read().first { $0.scheme == "rsaPSS" }).key
        for exponent in [[], [0], [1], [2], [4], [0, 1], [1, 0, 0]] as [[UInt8]] {
            #expect(PublicKey(rsaModulus: modulus, exponent: exponent) == nil, "\(exponent)")
        }
        for exponent in [[3], [0, 3], [1, 0, 1], [0xFF, 0xFF, 0xFF, 0xFF]] as [[UInt8]] {
            #expect(PublicKey(rsaModulus: modulus, exponent: exponent) != nil, "\(exponent)")
        }
        #expect(PublicKey(rsaModulus: Array(modulus.dropLast()) + [modulus[255] ^ 1], exponent: [1, 0, 1]) == nil)
        #expect(PublicKey(rsaModulus: [], exponent: [1, 0, 1]) == nil)
        let point = P256PrivateKey().publicPoint
        #expect(PublicKey(p256: point) != nil)
        var moved = point
        moved[63] ^= 1
        let (zeros, ones) = ([UInt8](repeating: 0, count: 64), [UInt8](repeating: 0xFF, count: 64))
        for other in [moved, zeros, ones, Array(point.dropLast()), point + [0], []] {
            #expect(PublicKey(p256: other) == nil, "\(other)")
        }
        #expect(PublicKey(ed25519: [UInt8](repeating: 1, count: 31)) == nil)
    }

    @Test("a secret is between zero and the order, and has one public half")
    func secrets() throws {
        // RFC 7515, appendix A.3.
        let secret = bytes("8e9b109e719098bf980487df1f5d77e9cb29606ebed2263b5f57c213df84f4b2")
        let key = try #require(P256PrivateKey(secret: secret))
        #expect(key.secret == secret)
        #expect(Array(key.publicPoint.prefix(4)) == [0x7F, 0xCD, 0xCE, 0x27])
        let order = "ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551"
        #expect(P256PrivateKey(secret: bytes(String(order.dropLast()) + "0")) != nil)
        for refused in [
            order, String(order.dropLast()) + "2", String(repeating: "f", count: 64), String(repeating: "0", count: 64),
        ] {
            #expect(P256PrivateKey(secret: bytes(refused)) == nil)
        }
        for refused in [[], [1], [0] + secret, Array(secret.dropFirst())] {
            #expect(P256PrivateKey(secret: refused) == nil)
        }
    }

    @Test("digests, keyed hashes and key derivation match FIPS 180, RFC 4231 and RFC 5869")
    func derivation() {
        let content = Array("abc".utf8)
        #expect(Digest.sha1.hash(content) == bytes("a9993e364706816aba3e25717850c26c9cd0d89d"))
        #expect(
            Digest.sha256.hash(content) == bytes("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
        )
        #expect(Digest.sha512.hash(content).prefix(4) == [0xDD, 0xAF, 0x35, 0xA1])
        #expect(Digest.sha256.hash([]).prefix(4) == [0xE3, 0xB0, 0xC4, 0x42])
        // RFC 4231, test case 2.
        let hash = Array("what do ya want for nothing?".utf8).withUnsafeBufferPointer {
            KeyedHash.sha256(of: $0, key: Array("Jefe".utf8))
        }
        #expect(Array(hash) == bytes("5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"))
        func derive(_ secret: [UInt8], _ salt: [UInt8], _ info: [UInt8], count: Int) -> [UInt8]? {
            let output = UnsafeMutableBufferPointer<UInt8>.allocate(capacity: count)
            output.initialize(repeating: 0)
            defer { output.deallocate() }
            return HKDF.derive(into: output, secret: secret, salt: salt, info: info) ? Array(output) : nil
        }
        let secret = [UInt8](repeating: 0x0B, count: 22)
        #expect(
            derive(secret, Array(0...0x0C), Array(0xF0...0xF9), count: 42)
                == bytes("3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865")
        )
        #expect(
            derive(Array(0...0x4F), Array(0x60...0xAF), Array(0xB0...0xFF), count: 82)?.prefix(8)
                == [0xB1, 0x1E, 0x39, 0x8D, 0xC8, 0x03, 0x27, 0xA1]
        )
        #expect(
            derive(secret, [], [], count: 42)
                == bytes("8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8")
        )
    }

    @Test("sealed bytes open with the same key and context only, and differ each time")
    func sealing() throws {
        let key = try SealingKey(secret: [UInt8](repeating: 9, count: 64), info: [1])
        let other = try SealingKey(secret: [UInt8](repeating: 9, count: 64), info: [2])
        for content in [[], [1], [UInt8](repeating: 7, count: 70_000)] {
            let sealed = try key.seal(content, for: [5])
            #expect(key.open(sealed, for: [5]) == content)
            #expect(try key.seal(content, for: [5]) != sealed)
            #expect(other.open(sealed, for: [5]) == nil)
            #expect(key.open(sealed, for: []) == nil)
            for index in [0, 12, sealed.count - 1] {
                var changed = sealed
                changed[index] ^= 0x40
                #expect(key.open(changed, for: [5]) == nil)
            }
            for length in [0, 11, 12, 27] { #expect(key.open(Array(sealed.prefix(length)), for: [5]) == nil) }
        }
        #expect(SealingKey([UInt8](repeating: 0, count: 31)) == nil)
    }

    @Test("secrets are compared by all their bytes")
    func comparison() {
        #expect(ConstantTime.areEqual([1, 2, 3], [1, 2, 3]))
        #expect(ConstantTime.areEqual("".utf8, []))
        #expect(ConstantTime.areEqual("abc".utf8, Array("abc".utf8)))
        for other in [[], [1, 2], [1, 2, 4], [0, 2, 3], [1, 2, 3, 0]] as [[UInt8]] {
            #expect(!ConstantTime.areEqual([1, 2, 3], other))
        }
    }
}

/// A case of `vectors.txt`, whose first lines describe the format.
struct Vector: Sendable, CustomTestStringConvertible {
    let scheme: String
    let name: String
    let isValid: Bool
    let key: [UInt8]
    /// For RSA only.
    let exponent: [UInt8]
    /// For sealed bytes only.
    let context: [UInt8]
    let message: [UInt8]
    /// The signature, or the sealed bytes.
    let result: [UInt8]

    var testDescription: String { "\(scheme) \(name)" }

    /// Whether a signature of the message is valid; `false` for an invalid key.
    func accepts(_ signature: [UInt8]) -> Bool {
        let (key, scheme): (PublicKey?, SignatureAlgorithm) =
            switch self.scheme {
            case "p256": (PublicKey(p256: self.key), .es256)
            case "ed25519": (PublicKey(ed25519: self.key), .edDSA)
            case "rsaPSS": (PublicKey(rsaModulus: self.key, exponent: exponent), .ps256)
            default: (PublicKey(rsaModulus: self.key, exponent: exponent), .rs256)
            }
        return key?.isValid(signature, of: message, by: scheme) ?? false
    }

    static func read() throws -> [Vector] {
        let path = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "vectors.txt")
        var (scheme, key): (String, [Substring]) = ("", [])
        return try String(contentsOf: path, encoding: .utf8).split(separator: "\n").compactMap { line in
            if line.hasPrefix("#") { return nil }
            var words = line.split(separator: " ")
            if line.hasPrefix("[") {
                scheme = String(words[0].drop { $0 == "[" }.prefix { $0 != "]" })
                key = words.dropFirst().first?.dropLast().split(separator: ":") ?? []
                return nil
            }
            let (name, expectation) = (String(words.removeFirst()), words.removeFirst())
            let caseKey = scheme == "gcm" ? [words.removeFirst()] : key
            return Vector(
                scheme: scheme,
                name: name,
                isValid: expectation == "valid" || expectation == "acceptable" && scheme == "ed25519",
                key: bytes(caseKey[0]),
                exponent: caseKey.count > 1 ? bytes(caseKey[1]) : [],
                context: scheme == "gcm" ? bytes(words.removeFirst()) : [],
                message: bytes(words[0]),
                result: bytes(words[1])
            )
        }
    }
}

/// Decodes hexadecimal digits; “-” stands for no bytes.
func bytes(_ text: some StringProtocol) -> [UInt8] {
    let digits = text.utf8.compactMap { Character(UnicodeScalar($0)).hexDigitValue }
    return stride(from: 0, to: digits.count, by: 2).map { UInt8(digits[$0] << 4 | digits[$0 + 1]) }
}
