import Identity
import Testing

@testable import EmbeddedIdentity

@Suite("Password hashes")
struct PasswordHashTests {
    @Test("only the right password matches, also a stored hash and one of another scrypt")
    func matching() throws {
        for password in ["", "correct horse", "pässwörd", "correct horse "] {
            let hash = try PasswordHash(hashing: Secret(password), cost: .minimal)
            for hash in [hash, try PasswordHash(stored: hash.text)] {
                let matches = try [password, password + "x", "Correct horse"].map { try hash.matches(Secret($0)) }
                #expect(matches == [true, false, false], "\(password)")
            }
        }
        let text = "$7$C6..../....SodiumChloride$kBGj9fHznVYFQMEn/qDCfrDevf9YDtcDdKvEqHJLV8D"
        #expect(try PasswordHash(stored: text).matches(Secret("pleaseletmein")))
        #expect(try !PasswordHash(stored: text).matches(Secret("pleaseletmeout")))
    }

    @Test("the standard hash is scrypt with N = 2^14, r = 32, p = 1 and a salt, in 64 MiB")
    func standardCost() throws {
        let text = try PasswordHash(hashing: Secret("correct horse")).text
        // The digits encode 14, 32 and 1.
        #expect(text.hasPrefix("$7$CU..../...."))
        let hashes = try (0..<3).map { _ in try PasswordHash(hashing: Secret("correct horse"), cost: .minimal).text }
        #expect(Set(hashes).count == 3)
    }

    @Test("511 bytes are accepted as a password; 512, a NUL and malformed hashes are not")
    func unusable() throws {
        let longest = String(repeating: "ä", count: 255) + "x"
        let hash = try PasswordHash(hashing: Secret(longest), cost: .minimal)
        #expect(try hash.matches(Secret(longest)))
        #expect(try !hash.matches(Secret(String(longest.dropLast()) + "y")), "the end is not read")
        for (text, error) in [(longest + "x", PasswordError.tooLong), ("a\0b", .containsNUL)] {
            #expect(throws: error) { try PasswordHash(hashing: Secret(text), cost: .minimal) }
            #expect(throws: error) { try hash.matches(Secret(text)) }
        }
        for text in ["", "*0", "$1$salt$hash", "plain", "$7$", "$7$CU..", "$7$\0"] {
            #expect(throws: PasswordError.malformedHash, "\(text)") {
                try PasswordHash(stored: text).matches(Secret("plain"))
            }
        }
    }

    @Test("no password matches the decoy, which costs as much as a real hash")
    func decoy() throws {
        let decoy = try PasswordHash.decoy(cost: .minimal)
        #expect(try !decoy.matches(Secret("")) && !decoy.matches(Secret("correct horse")))
        let real = try PasswordHash(hashing: Secret("correct horse"), cost: .minimal)
        #expect(decoy.text.count == real.text.count && decoy.text.prefix(14) == real.text.prefix(14))
    }

    @Test("a secret is hidden in descriptions")
    func hidden() {
        struct Holder { let secret = Secret("correct horse") }
        var dumped = ""
        dump(Holder(), to: &dumped)
        for text in ["\(Secret("correct horse"))", String(reflecting: Holder()), "\(Holder())", dumped] {
            #expect(!text.contains("horse"))
        }
    }
}
