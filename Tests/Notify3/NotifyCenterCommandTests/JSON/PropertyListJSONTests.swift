import Basics
import NotifyCenter
import Testing

@testable import notify_center

func propertyList(_ json: String) throws -> PropertyListValue {
    try PropertyListValue(parsing: Array(json.utf8), limits: JSONLimits(size: .max))
}

@Suite("JSON as a property list")
struct PropertyListJSONTests {
    @Test("values become those of a property list; null and infinite numbers are refused")
    func values() throws {
        let values: [(text: String, value: PropertyListValue)] = [
            ("{}", .dictionary([:])), (" [ ] ", .array([])), ("true", true), ("false", false), ("0", 0), ("-0", 0),
            ("-12", -12), ("9223372036854775807", .integer(.max)), ("-9223372036854775808", .integer(.min)),
            ("18446744073709551615", .unsigned(.max)), ("18446744073709551616", .double(18_446_744_073_709_551_616)),
            ("1.0", 1.0), ("-1.5e-2", -0.015), ("1E3", 1000.0), ("\"\"", ""), ("\"é\u{1F600}\"", "é\u{1F600}"),
            (#"{"a":[1,{"b":"c"}],"":2}"#, ["a": [1, ["b": "c"]], "": 2]),
        ]
        for (text, value) in values { #expect(try propertyList(text) == value, "\(text)") }
        for text in ["null", "[null]", #"{"a":null}"#, "1e999"] {
            #expect(throws: JSONError.self, "\(text)") { try propertyList(text) }
        }
    }
}
