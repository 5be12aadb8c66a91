import Cryptography
import Testing

@testable import Basics

@Suite("Untrusted JSON")
struct StrictJSONTests {
    private func value(_ text: String, depth: Int = 16, values: Int = 1000) -> JSONValue? {
        try? JSONValue(parsing: Array(text.utf8), limits: JSONLimits(size: 1 << 20, depth: depth, values: values))
    }

    @Test("each kind of value is parsed")
    func values() {
        #expect(value(#" { "a" : [1, -2.5e1, true, false, null, "x"] } "#)?["a"]?.array?.count == 6)
        #expect(value(#""\u00e9\ud83d\ude00\n\/""#)?.string == "é😀\n/")
        #expect(value("-0.5e1")?.number == -5)
        #expect(value(#"["a","b"]"#)?.strings == ["a", "b"])
        #expect(value(#"["a",1]"#)?.strings == nil)
    }

    @Test("malformed JSON, and bytes that are not UTF-8, are rejected")
    func refused() {
        for text in [
            "", " ", "{", "}", "[1,]", "[1 2]", "1 2", "{\"a\":1,}", "{\"a\"}", "{\"a\":}", "{\"a\" 1}", "{a:1}", "'a'",
            "01", "1.", ".5", "+1", "1e", "0x1", "-", "--1", "NaN", "Infinity", "1e999", "[1] 2", "\"", "\"\n\"",
            "\"\\x\"", "\"\u{1}\"", #""\u12""#, #""\u12g4""#, #""\ud800""#, #""\udc00\ud800""#, #""\ud800\u0041""#,
            "tru", "TRUE", "nul", "/*a*/1", "\u{FEFF}1",
            #"{"a":1,"a":1}"#, #"{"a":1,"\u0061":2}"#, #"{"a":{"b":1,"b":2}}"#,
        ] {
            #expect(value(text) == nil, "\(text)")
        }
        for bytes in [[0xFF], [0x22, 0xC3, 0x22], [0x22, 0xED, 0xA0, 0x80, 0x22], [0x22, 0xC0, 0x80, 0x22]] as [[UInt8]]
        {
            #expect(throws: JSONError.self) { try JSONValue(parsing: bytes, limits: JSONLimits(size: 100)) }
        }
    }

    @Test("the limits of size, depth and number of values are exact")
    func limits() {
        for (text, depth) in [("[[[]]]", 3), (#"{"a":{"b":1}}"#, 2)] {
            #expect(value(text, depth: depth) != nil && value(text, depth: depth - 1) == nil)
        }
        #expect(value("[1,2,3]", values: 4) != nil && value("[1,2,3]", values: 3) == nil)
        #expect(value(String(repeating: "[", count: 1 << 20)) == nil)
        #expect(throws: JSONError(what: "it has more than 2 bytes", offset: nil)) {
            try JSONValue(parsing: Array("123".utf8), limits: JSONLimits(size: 2))
        }
    }

    @Test("base64url has exactly one text for given bytes")
    func base64URL() {
        for length in 0..<64 {
            let bytes = (0..<length).map { UInt8(truncatingIfNeeded: $0 &* 37 &+ length) }
            let text = Base64URL.encode(bytes)
            #expect(Base64URL.decode(text.utf8) == bytes)
            #expect(!text.contains("=") && !text.contains("+") && !text.contains("/"))
        }
        for text in ["A", "AB", "Zg==", "Zm9v\n", "+///", "Zh"] {
            #expect(Base64URL.decode(text.utf8) == nil, "\(text)")
        }
        #expect(Base64URL.decode("Zg".utf8) == [0x66])
    }
}
