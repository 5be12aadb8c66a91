import DeviceConfiguration
import Foundation
import SharedDeviceBroker
import Testing

@Suite("Errors in the managed configuration")
struct ConfigurationErrorTests {
    private struct Mistake {
        let key: String
        let json: String
        let code: ManagedConfigurationError.Code
        let remedy: String
    }

    private static let booleans = [
        "sharedDeviceMode", "requiresEnrolment", "requiresJoin", "signOutOnScreenLock", "signOutOnLogout",
    ]
    private static let strings = [
        "organization", "tenantIdentifier", "cleanupPolicy", "endSessionURL", "AppAllowList", "AppBlockList",
        "AppPrefixAllowList",
    ]
    private static let numbers = ["cleanupTimeout", "inactivityTimeout"]

    private static let mistakes: [Mistake] =
        booleans.flatMap { key in
            ["1", "0", "\"true\"", "null", "[true]"].map {
                Mistake(key: key, json: $0, code: .wrongType, remedy: "true or false")
            }
        }
        + ["\"1\"", "0.5", "null", "2", "-1"].map {
            Mistake(
                key: "Enable_SSO_On_All_ManagedApps",
                json: $0,
                code: $0 == "2" || $0 == "-1" ? .invalidValue : .wrongType,
                remedy: "0 or 1"
            )
        }
        + strings.flatMap { key in
            ["7", "null", "[]", "true"].map { Mistake(key: key, json: $0, code: .wrongType, remedy: "a string") }
        }
        + ["tenantIdentifier", "AppAllowList"].map {
            Mistake(key: $0, json: "\"  \"", code: .invalidValue, remedy: "leave the key out")
        }
        + numbers.flatMap { key in
            [
                Mistake(key: key, json: "\"30\"", code: .wrongType, remedy: "a number"),
                Mistake(key: key, json: "-1", code: .invalidValue, remedy: "a number of seconds"),
                Mistake(key: key, json: "1e300", code: .invalidValue, remedy: "at most a year"),
                Mistake(key: key, json: "9223372036854775807", code: .invalidValue, remedy: "at most a year"),
                Mistake(key: key, json: "true", code: .wrongType, remedy: "a number"),
                Mistake(key: key, json: "null", code: .wrongType, remedy: "a number"),
            ]
        }
        + ["\"06:00\"", "[6]", "[null]", "{}", "null"].map {
            Mistake(key: "shiftEnds", json: $0, code: .wrongType, remedy: "an array of strings")
        }
        + ["[\"6:00\"]", "[\"24:00\"]", "[\"12:60\"]", "[\"0600\"]", "[\"-1:00\"]", "[\"\"]", "[\"06:00:00\"]"].map {
            Mistake(key: "shiftEnds", json: $0, code: .invalidValue, remedy: "HH:MM")
        }
        + ["\"a,,b\"", "\"com.a.b,\"", "\",com.a.b\""].map {
            Mistake(key: "AppPrefixAllowList", json: $0, code: .invalidValue, remedy: "one comma between each two")
        }
        + ["\"com.a.b com.c.d\"", "\"com.a.b;\u{e9}\""].map {
            Mistake(key: "AppBlockList", json: $0, code: .invalidValue, remedy: "with commas between")
        }
        + [
            Mistake(key: "inactivityTimeout", json: "0", code: .invalidValue, remedy: "more than 0"),
            Mistake(
                key: "cleanupPolicy",
                json: "\"Strict\"",
                code: .invalidValue,
                remedy: "advisory, strict or enforced"
            ),
        ]

    @Test("each error names the file, the key and the remedy")
    func everyMistake() throws {
        for mistake in Self.mistakes {
            let text = "{\"\(mistake.key)\": \(mistake.json)}"
            let error = try #require(configurationError(text), "\(text)")
            #expect(error.code == mistake.code && error.key == mistake.key, "\(text): \(error)")
            #expect(error.remedy.contains(mistake.remedy), "\(text): \(error)")
            #expect(error.description.hasPrefix("managed: \"\(mistake.key)\": "))
        }
    }

    @Test("deeply nested or damaged JSON is an error and does not crash")
    func damaged() throws {
        #expect(configurationError("{\"a\":" + String(repeating: "[", count: 100_000))?.code == .invalidJSON)
        let text = #"{"sharedDeviceMode": true, "shiftEnds": ["06:00"], "cleanupTimeout": 2.5, "AppBlockList": "a.b"}"#
        #expect(configurationError(#"{"cleanupTimeout": 1e999}"#)?.code == .invalidJSON)
        for length in 0..<text.utf8.count {
            #expect(configurationError(String(text.prefix(length)))?.code == .invalidJSON, "\(length)")
        }
        for position in text.utf8.indices {
            for byte: UInt8 in [0x00, 0xFF, 0x22, 0x7D] {
                var bytes = Data(text.utf8)
                bytes[text.utf8.distance(from: text.startIndex, to: position)] = byte
                _ = try? ManagedConfiguration(json: bytes, file: "managed")
            }
        }
    }

    @Test(
        "a syntax error has its line and column",
        arguments: [
            ("", "it ends too early, in line 1, column 1"), ("{", "it ends too early, in line 1, column 2"),
            ("[1,", "it ends too early, in line 1, column 4"), ("{\"a\": tr", "it ends too early, in line 1, column 9"),
            ("{\"ä\": yes}", "invalid value in line 1, column 7"), ("{\n  a: 1}", "no key in line 2, column 3"),
            ("{\"a\" 1}", "no “:” in line 1, column 6"),
            ("{\"a\": 1 \"b\"}", "no comma before the next key in line 1, column 9"),
            ("{\"a\": [1 2]}", "no comma before the next value in line 1, column 10"),
            ("{\"a\": -x}", "no digit in line 1, column 8"),
            ("{\"a\": 1} x", "something after the value in line 1, column 10"),
            ("{\"a\": 1,\n}", "nothing after a comma in line 2, column 1"),
            ("{\"a\": [1, ]}", "nothing after a comma in line 1, column 11"),
        ]
    )
    func place(text: String, flaw: String) {
        let error = configurationError(text)
        #expect(error?.message == "it is not JSON: \(flaw)")
        #expect(error?.remedy == #"write one JSON object, such as {"sharedDeviceMode": true} in a configuration"#)
    }

    @Test("a duplicate key is an error with its second place")
    func twice() {
        let flat = configurationError("{\"sharedDeviceMode\": true,\n \"sharedDeviceMode\": false}")
        #expect(flat?.code == .contradiction)
        #expect(flat?.description == "managed: “sharedDeviceMode” is there twice, again in line 2, column 2; leave one")
        let nested = configurationError(#"{"oidcEndpoints": {"a": "x", "\u0061": "y"}}"#)
        #expect(nested?.message == "“a” is there twice, again in line 1, column 30")
    }
}
