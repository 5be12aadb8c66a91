import DeviceConfiguration
import Foundation
import Testing

@Suite("Errors in the managed configuration")
struct ConfigurationErrorTests {
    private typealias Mistakes = (keys: [String], values: [String], remedy: String)

    private static let booleans = [
        "sharedDeviceMode", "requiresEnrolment", "requiresJoin", "signOutOnScreenLock", "signOutOnLogout",
    ]
    private static let strings = [
        "organization", "tenantIdentifier", "cleanupPolicy", "endSessionURL", "AppAllowList", "AppBlockList",
        "AppPrefixAllowList",
    ]
    private static let numbers = [
        "cleanupTimeout", "inactivityTimeout", "lockedTime", "longestSession", "signOutWarning",
    ]

    private static let wrongTypes: [Mistakes] = [
        (booleans, ["1", "0", #""true""#, "null", "[true]"], "true or false"),
        (["Enable_SSO_On_All_ManagedApps"], [#""1""#, "0.5", "null"], "0 or 1"),
        (strings, ["7", "null", "[]", "true"], "a string"), (numbers, [#""30""#, "true", "null"], "a number"),
        (["shiftEnds"], [#""06:00""#, "[6]", "[null]", "{}", "null"], "an array of strings"),
        (["allowedUsers"], [#"["ada"]"#, #"{"users": "ada"}"#, #"{"groups": [7]}"#, "null"], "an object of arrays"),
    ]

    private static let invalidValues: [Mistakes] = [
        (["Enable_SSO_On_All_ManagedApps"], ["2", "-1"], "0 or 1"),
        (["tenantIdentifier", "AppAllowList"], [#""  ""#], "leave the key out"),
        (numbers, ["-1"], "a number of seconds"), (numbers, ["1e300", "9223372036854775807"], "at most a year"),
        (["inactivityTimeout", "lockedTime", "longestSession"], ["0"], "more than 0"),
        (["shiftEnds"], [#"["6:00"]"#, #"["24:00"]"#], "HH:MM"),
        (["shiftEnds"], [#"["12:60"]"#, #"["0600"]"#, #"["-1:00"]"#, #"[""]"#, #"["06:00:00"]"#], "HH:MM"),
        (["AppPrefixAllowList"], [#""a,,b""#, #""com.a.b,""#, #"",com.a.b""#], "one comma between each two"),
        (["AppBlockList"], [#""com.a.b com.c.d""#, "\"com.a.b;\u{e9}\""], "with commas between"),
        (["allowedUsers"], ["{}", #"{"users": []}"#], "to allow all"),
        (["allowedUsers"], [#"{"users": ["ada"], "group": ["nurses"]}"#], "write users and groups"),
        (["allowedUsers"], [#"{"users": [""]}"#, #"{"users": [" ada"]}"#, #"{"groups": ["a\u0000b"]}"#], "1 to "),
        (["allowedUsers"], [tooLong("users", 257), tooLong("groups", 1025)], "1 to "),
        (
            ["allowedUsers"], [#"{"users": [\#(Array(repeating: #""a""#, count: 1001).joined(separator: ","))]}"#],
            "at most"
        ),
        (["cleanupPolicy"], [#""Strict""#], "advisory, strict or enforced"),
        (["inactivityAction"], [#""Lock""#], "signOut or lock"),
    ]

    private static func tooLong(_ key: String, _ length: Int) -> String {
        #"{"\#(key)": ["\#(String(repeating: "a", count: length))"]}"#
    }

    @Test("each error names the file, the key and the remedy")
    func everyMistake() throws {
        try expectMistakes(.wrongType, Self.wrongTypes)
        try expectMistakes(.invalidValue, Self.invalidValues)
        let negative = try #require(configurationError(#"{"cleanupTimeout": -1}"#))
        #expect(negative.description.contains("it is -1 seconds"), "\(negative)")
    }

    private func expectMistakes(_ code: ManagedConfigurationError.Code, _ table: [Mistakes]) throws {
        for (keys, values, remedy) in table {
            for (key, value) in keys.flatMap({ key in values.map { (key, $0) } }) {
                let error = try #require(configurationError("{\"\(key)\": \(value)}"), "\(key): \(value)")
                #expect(error.code == code && error.key == key, "\(value): \(error)")
                #expect(error.remedy.contains(remedy), "\(value): \(error)")
                #expect(error.description.hasPrefix("managed: \"\(key)\": "))
            }
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
