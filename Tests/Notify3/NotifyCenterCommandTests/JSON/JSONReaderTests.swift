import NotifyCenter
import Testing

@testable import notify_center

@Suite("Reading JSON")
struct JSONReaderTests {
    private func read(_ text: String) -> PropertyListValue? { try? JSONReader.read(text) }

    @Test("values become the corresponding values of a property list")
    func values() {
        let values: [(text: String, value: PropertyListValue)] = [
            ("{}", .dictionary([:])), (" [ ] ", .array([])), ("true", true), ("false", false), ("0", 0), ("-0", 0),
            ("-12", -12), ("9223372036854775807", .integer(.max)), ("-9223372036854775808", .integer(.min)),
            ("18446744073709551615", .unsigned(.max)), ("18446744073709551616", .double(18_446_744_073_709_551_616)),
            ("1.0", 1.0), ("-1.5e-2", -0.015), ("1E3", 1000.0), ("\"\"", ""), ("\"é\u{1F600}\"", "é\u{1F600}"),
            (#""\"\\\/\b\f\n\r\t""#, "\"\\/\u{8}\u{C}\n\r\t"), (#""\u0041\u00e9\ud83d\ude00\u0000""#, "Aé\u{1F600}\0"),
            (#"{"a":[1,{"b":"c"}],"":2}"#, ["a": [1, ["b": "c"]], "": 2]), ("\t\r\n 1 ", 1),
        ]
        for (text, value) in values { #expect(read(text) == value, "\(text)") }
    }

    @Test("syntax beyond RFC 8259 is refused")
    func refusals() {
        for text in [
            "", " ", "{", "}", "[1,]", "{\"a\":1,}", "{a:1}", "{'a':1}", "{\"a\"}", "{\"a\":}", "{\"a\" 1}", "[1 2]",
            "1 2", "01", "+1", ".5", "1.", "1e", "0x1", "-", "--1", "tru", "TRUE", "NaN", "Infinity", "1e999", "\"",
            "\"\n\"", "\"\\x\"", "\"\\u12\"", "\"\\u12g4\"", "\"\\ud800\"", "\"\\ud800\\u0041\"", "\"\\udc00\"",
            "// 1\n1", "\u{FEFF}1", "null", "[null]", "{\"a\":1,\"a\":2}",
        ] {
            #expect(read(text) == nil, "\(text)")
        }
    }

    @Test("an error names the position")
    func offsets() {
        #expect(throws: JSONReader.SyntaxError(offset: 6, reason: "a value cannot begin like this")) {
            try JSONReader.read("{\"é\":x}")
        }
        #expect(throws: JSONReader.SyntaxError(offset: 5, reason: "a property list cannot hold null")) {
            try JSONReader.read("{\"a\":null}")
        }
    }

    @Test("a text that is nested too deep is refused")
    func depth() {
        func nested(_ depth: Int) -> String {
            String(repeating: "[", count: depth) + String(repeating: "]", count: depth)
        }
        #expect([60, 70, 1_000_000].map { read(nested($0)) != nil } == [true, false, false])
    }
}
