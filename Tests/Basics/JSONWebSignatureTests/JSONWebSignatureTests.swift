import Basics
import Cryptography
import FoundationEssentials
import Glibc
import Testing

@Suite("Tokens are accepted only with their signer's signature")
struct JSONWebSignatureTests {
    private let signer = Signer.shared

    @Test("each accepted algorithm verifies, with and without a key identifier", arguments: SignatureAlgorithm.allCases)
    func accepted(algorithm: SignatureAlgorithm) throws {
        let name = algorithm.rawValue
        let keys = try keySet(
            signer.key(name).with("kid", "1").with("alg", name).with("use", "sig"),
            Signer.shared.key(name == "ES256" ? "EdDSA" : "ES256").with("kid", "2")
        )
        for kid in ["1", nil] {
            let token = try signer.token(#"{"sub":"ada","n":[1,{"a":null}]}"#, alg: name, kid: kid)
            let verified = try keys.verify(CompactSignature(parsing: token))
            #expect(verified.claims["sub"]?.string == "ada")
            #expect(verified.algorithm == algorithm)
        }
    }

    @Test("a truncated token, or one with any flipped bit, is rejected", arguments: ["ES256", "EdDSA", "RS256"])
    func bitFlips(algorithm: String) throws {
        let keys = try keySet(signer.key(algorithm).with("kid", "1"))
        let token = Array(try signer.token(alg: algorithm).utf8)
        for index in token.indices {
            for bit in 0..<8 {
                var changed = token
                changed[index] ^= 1 << bit
                guard let text = String(validating: changed, as: UTF8.self) else { continue }
                #expect(refusal(of: text, by: keys) != nil, "byte \(index), bit \(bit)")
            }
        }
        for length in token.indices {
            let start = String(decoding: token[..<length], as: UTF8.self)
            #expect(refusal(of: start, by: keys) != nil, "\(length) characters")
        }
    }

    @Test("a token of 64 KiB is read; a larger one is rejected by its size alone")
    func sizes() throws {
        let keys = try keySet(signer.key("ES256").with("kid", "1"))
        func token(filler: Int) throws -> String {
            try signer.token(#"{"x":"\#(String(repeating: "a", count: filler))"}"#)
        }
        // Three bytes of content are four characters in base64url.
        let most = try token(filler: (CompactSignature.maximumSize - (try token(filler: 0)).utf8.count) / 4 * 3 - 3)
        #expect(most.utf8.count > CompactSignature.maximumSize - 8)
        #expect(refusal(of: most, by: keys) == nil)
        let tooLarge = SignatureError.tooLarge(limit: 65_536)
        #expect(refusal(of: String(repeating: "a", count: CompactSignature.maximumSize + 1), by: keys) == tooLarge)
        let huge = String(repeating: "e30.", count: 30_000_000 / 4)
        // Processor time, because other tests use the processors as well.
        let before = threadTime()
        #expect(refusal(of: huge, by: keys) == tooLarge)
        #expect(threadTime() - before < .milliseconds(100))
    }

    @Test("unsupported algorithms, and headers with keys or unknown members, are rejected")
    func headers() throws {
        let rsa = try keySet(signer.key("RS256").with("kid", "1"))
        let claims = Base64URL.encode(#"{"sub":"ada"}"#.utf8)
        for algorithm in ["none", "None", "HS256", "HS512", "RS384", "ES384", "es256", ""] {
            #expect(refusal(of: try signer.token(alg: algorithm), by: rsa) == .refusedAlgorithm(algorithm))
            let header = Base64URL.encode(#"{"alg":"\#(algorithm)"}"#.utf8)
            #expect(refusal(of: "\(header).\(claims).", by: rsa) == .refusedAlgorithm(algorithm))
        }
        let keys = try keySet(signer.key("ES256").with("kid", "1"))
        for member in ["crit", "jku", "x5u", "jwk", "b64", "enc", "zip"] {
            let token = try signer.token(header: #"{"alg":"ES256","kid":"1","\#(member)":["exp"]}"#)
            #expect(refusal(of: token, by: keys) == .refusedHeader(member))
        }
    }

    @Test("a token with another form, padding or repeated members is rejected")
    func form() throws {
        let keys = try keySet(signer.key("ES256").with("kid", "1"))
        let token = try signer.token()
        let parts = token.split(separator: ".").map(String.init)
        let twice = [
            try signer.token(header: #"{"alg":"none","alg":"ES256","kid":"1"}"#),
            try signer.token(#"{"sub":"grace","sub":"ada"}"#), try signer.token(#"{"sub":"grace","s\u0075b":"ada"}"#),
        ]
        for text in [
            "", ".", "..", "...", parts[0], parts[0] + "." + parts[1], parts[0] + "." + parts[1] + ".", token + ".",
            token + "=", " " + token, token + "\n", "{}." + parts[1] + "." + parts[2], try signer.token(#"["sub"]"#),
        ] + twice {
            if case .malformed = refusal(of: text, by: keys) { continue }
            Issue.record("it is not malformed: \(text)")
        }
        #expect(refusal(of: "a.b.c.d.e", by: keys) == .refusedHeader("enc"))
    }

    @Test("the named key, or the only key that fits, must exist and have the algorithm")
    func keyChoice() throws {
        var stranger = signer
        stranger.p256 = P256PrivateKey()
        let (ours, theirs) = (signer.key("ES256"), stranger.key("ES256"))
        let both = try keySet(ours.with("kid", "1"), theirs.with("kid", "2"))
        #expect(refusal(of: try signer.token(kid: "1"), by: both) == nil)
        #expect(refusal(of: try signer.token(kid: "2"), by: both) == .wrongSignature(.es256, identifier: "2"))
        #expect(refusal(of: try signer.token(kid: "3"), by: both) == .unknownKey(.es256, identifier: "3"))
        #expect(refusal(of: try signer.token(kid: nil), by: both) == .ambiguousKey(.es256, identifier: nil))
        #expect(try refusal(of: signer.token(kid: "1"), by: keySet(ours)) == .unknownKey(.es256, identifier: "1"))
        // Swift's `==` treats the Kelvin sign and “K” as equal.
        let kelvin = try keySet(ours.with("kid", "\u{212A}"))
        #expect(refusal(of: try signer.token(kid: "K"), by: kelvin) == .unknownKey(.es256, identifier: "K"))
        let twice = try keySet(ours.with("kid", "1"), theirs.with("kid", "1"))
        #expect(refusal(of: try signer.token(kid: "1"), by: twice) == .ambiguousKey(.es256, identifier: "1"))
        let onlyPSS = try keySet(signer.key("RS256").with("kid", "1").with("alg", "PS256"))
        #expect(refusal(of: try signer.token(alg: "PS256"), by: onlyPSS) == nil)
        #expect(refusal(of: try signer.token(alg: "RS256"), by: onlyPSS) == .unknownKey(.rs256, identifier: "1"))
        #expect(refusal(of: try signer.token(alg: "ES256"), by: onlyPSS) == .unknownKey(.es256, identifier: "1"))
    }

    @Test("a coordinate without its leading zeros is accepted")
    func zerosInFront() throws {
        var signer = signer
        // On average, one key in 256 begins with a zero.
        while signer.p256.publicPoint.first != 0 { signer.p256 = P256PrivateKey() }
        let point = signer.p256.publicPoint
        let key = signer.key("ES256").with("kid", "1").with("x", Base64URL.encode(point[1..<32]))
        #expect(refusal(of: try signer.token(), by: try keySet(key)) == nil)
    }

    @Test("keys that are weak, contradictory, secret or for other purposes are not used")
    func keysThatAreRefused() throws {
        let (rsa, point) = (signer.key("RS256"), signer.key("ES256"))
        let short = Base64URL.encode([UInt8](repeating: 0xFF, count: 128))
        let padded = Base64URL.encode([UInt8](repeating: 0, count: 200) + [UInt8](repeating: 0xFF, count: 128))
        let long = Base64URL.encode([UInt8](repeating: 0xFF, count: 2000))
        let cases: [([String: String], JSONWebKey.Flaw)] = [
            (rsa.with("use", "enc"), .otherPurpose), (rsa.with("alg", "ES256"), .contradiction),
            (rsa.with("alg", "RS512"), .contradiction), (rsa.with("n", short), .weak), (rsa.with("n", padded), .weak),
            (rsa.with("n", long), .weak), (rsa.with("e", "AQAAAAAB"), .weak), (rsa.with("e", "Ag"), .weak),
            (rsa.with("n", "?"), .malformed("n")), (rsa.with("d", "AQAB"), .published),
            (point.with("crv", "P-384"), .otherPurpose), (point.with("x", point["y"] ?? ""), .weak),
            (point.with("x", Base64URL.encode([1, 2, 3])), .weak), (point.with("alg", "EdDSA"), .contradiction),
            (["kty": "oct", "k": "c2VjcmV0"], .otherPurpose),
            (["kty": "OKP", "crv": "X25519", "x": signer.key("EdDSA")["x"] ?? ""], .otherPurpose), ([:], .otherPurpose),
        ]
        for (key, reason) in cases {
            let keys = try keySet(key)
            #expect(keys.keys.isEmpty && keys.unused == [reason], "\(key)")
        }
    }

    @Test("a key set that is too large, has too many keys or is malformed is rejected")
    func keySets() throws {
        func flaw(_ text: String) -> String? {
            do throws(Problem) {
                _ = try JSONWebKeySet(parsing: Array(text.utf8))
                return nil
            } catch {
                return error.description
            }
        }
        #expect(flaw("{}") == "it has no “keys”")
        #expect(flaw(#"{"keys":{}}"#) == "it has no “keys”")
        #expect(flaw(#"{"keys":[]}"#) == nil)
        let many = Array(repeating: "{}", count: 101).joined(separator: ",")
        #expect(flaw(#"{"keys":[\#(many)]}"#) == "it has more than 100 keys")
        #expect(flaw(String(repeating: " ", count: 512 * 1024 + 1)) != nil)
        #expect(flaw("<html>")?.contains("not JSON") == true)
    }
}

/// The processor time of this thread.
private func threadTime() -> Duration {
    var time = timespec()
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
    return .seconds(time.tv_sec) + .nanoseconds(time.tv_nsec)
}
