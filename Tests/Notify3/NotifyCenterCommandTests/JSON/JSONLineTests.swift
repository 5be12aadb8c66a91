import CommandSupport
import NotifyCenter
import Testing

@testable import notify_center

@Suite("Writing JSON")
struct JSONLineTests {
    @Test("any text can be read back and cannot control a terminal, for people too")
    func texts() throws {
        #expect("com.example é\u{1F600}".visible == "com.example é\u{1F600}")
        #expect("a\u{1B}[31m\\\n\u{202E}".visible == #"a\u001b[31m\\\u000a\u202e"#)
        for text in Hostile.names {
            var line = JSONLine("x")
            line.add("name", text)
            #expect(try jsonObject(line.text)["name"] as? String == text)
            let controls = line.text.unicodeScalars.filter {
                $0.value < 0x20 || (0x7F..<0xA0).contains($0.value) || $0.properties.isBidiControl
            }
            #expect(controls.isEmpty, "\(line.text)")
            #expect(try propertyList(line.text) == ["type": "x", "name": .string(text)])
        }
    }

    @Test("fields keep their order, a userInfo's keys are sorted, and it can be read back")
    func order() throws {
        var line = JSONLine("x")
        line.add("b", 1)
        line.add("a", String?.none)
        line.add("state", UInt64.max)
        #expect(line.text == #"{"type":"x","b":1,"a":null,"state":18446744073709551615}"#)
        let info: UserInfo = [
            "z": [1, .unsigned(.max), 1.5, true], "a": ["n\"": "\u{1B}"], "e": 1e300, "m": .integer(.min),
        ]
        #expect(
            info.json
                == #"{"a":{"n\"":"\u001b"},"e":1e+300,"m":-9223372036854775808,"z":[1,18446744073709551615,1.5,true]}"#
        )
        #expect(try propertyList(info.json) == .dictionary(info))
    }

    @Test("data is base64, a date is ISO 8601 in UTC, and other values are numbers or null")
    func values() {
        func date(_ seconds: Double) -> PropertyListValue {
            .date(PropertyListDate(secondsSinceReferenceDate: seconds))
        }
        let values: [(value: PropertyListValue, json: String)] = [
            (.data([]), "\"\""), (.data([0]), #""AA==""#), (.data([0, 255]), #""AP8=""#),
            (.data([0, 255, 254]), #""AP/+""#), (.data([1, 2, 3, 4]), #""AQIDBA==""#),
            (date(0), #""2001-01-01T00:00:00.000Z""#), (date(-978_307_200), #""1970-01-01T00:00:00.000Z""#),
            (date(-978_307_200.25), #""1969-12-31T23:59:59.750Z""#),
            // The calendar does not have it.
            (date(1e20), "1e+20"), (date(.infinity), "null"), (date(.nan), "null"),
            (.double(.nan), "null"), (.double(-.infinity), "null"), (.double(1), "1.0"),
        ]
        for (value, json) in values { #expect(value.json == json) }
    }
}
