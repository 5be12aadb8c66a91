import CommandSupport
import Foundation
import NotifyCenter
import Testing

@testable import notify_center

@Suite("Writing JSON")
struct JSONLineTests {
    private func parsed(_ text: String) throws -> [String: Any] {
        #expect(!text.contains("\n"))
        return try #require(try JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any])
    }

    @Test("any text can be read back, and cannot control a terminal", arguments: Hostile.names)
    func texts(text: String) throws {
        var line = JSONLine("x")
        line.add("name", text)
        #expect(try parsed(line.text)["name"] as? String == text)
        #expect(!line.text.unicodeScalars.contains { $0.value < 0x20 || (0x7F..<0xA0).contains($0.value) })
        #expect(!line.text.unicodeScalars.contains { $0.properties.isBidiControl })
        #expect(try JSONReader.read(line.text) == ["type": "x", "name": .string(text)])
    }

    @Test("fields keep their order")
    func order() {
        var line = JSONLine("x")
        line.add("b", 1)
        line.add("a", String?.none)
        line.add("state", UInt64.max)
        #expect(line.text == #"{"type":"x","b":1,"a":null,"state":18446744073709551615}"#)
    }

    @Test("a userInfo becomes JSON with sorted keys, and JSON's types can be read back")
    func userInfo() throws {
        let info: UserInfo = [
            "z": [1, .unsigned(.max), 1.5, true], "a": ["n\"": "\u{1B}"], "e": 1e300, "m": .integer(.min),
        ]
        #expect(
            info.json
                == #"{"a":{"n\"":"\u001b"},"e":1e+300,"m":-9223372036854775808,"z":[1,18446744073709551615,1.5,true]}"#
        )
        #expect(try JSONReader.read(info.json) == .dictionary(info))
    }

    @Test(
        "data is base64",
        arguments: [
            ([], ""), ([0], "AA=="), ([0, 255], "AP8="), ([0, 255, 254], "AP/+"), ([1, 2, 3, 4], "AQIDBA=="),
        ]
            as [([UInt8], String)]
    )
    func data(bytes: [UInt8], text: String) { #expect(PropertyListValue.data(bytes).json == "\"\(text)\"") }

    @Test(
        "a date is ISO 8601 in UTC, or a number if the calendar does not have it",
        arguments: [
            (0, "\"2001-01-01T00:00:00.000Z\""), (-978_307_200, "\"1970-01-01T00:00:00.000Z\""),
            (-978_307_200.25, "\"1969-12-31T23:59:59.750Z\""), (1e20, "1e+20"), (.infinity, "null"), (.nan, "null"),
        ] as [(Double, String)]
    )
    func dates(seconds: Double, text: String) {
        #expect(PropertyListValue.date(PropertyListDate(secondsSinceReferenceDate: seconds)).json == text)
    }

    @Test("NaN and infinity are null")
    func doubles() {
        #expect(PropertyListValue.double(.nan).json == "null")
        #expect(PropertyListValue.double(-.infinity).json == "null")
        #expect(PropertyListValue.double(1).json == "1.0")
    }

    @Test("text for people escapes only control characters and backslashes")
    func visible() {
        #expect("com.example é\u{1F600}".visible == "com.example é\u{1F600}")
        #expect("a\u{1B}[31m\\\n\u{202E}".visible == #"a\u001b[31m\\\u000a\u202e"#)
    }
}
