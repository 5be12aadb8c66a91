import NotifyCenterTestKit
import Testing

@Suite("The contents of a userInfo", .timeLimit(.minutes(10)))
struct UserInfoTests {
    private let app: App

    init() throws { app = try App() }

    // CF-U1, CF-U6, CF-U7, CF-D8, CF-P4, CF-P12
    @Test("each property list arrives as it was when posted, with the types of its values")
    func samples() async throws {
        let everyType = [
            #""": {}"#, #""array": [true, {"in": []}]"#, #""big": 18446744073709551615"#, #""data": data [0, 255]"#,
            #""date": date 0.0625"#, #""double": 1.0"#, #""false": false"#, #""no-data": data []"#, #""one": 7"#,
            #""small": -9223372036854775808"#, #""text": "a\0b😀""#, #""true": true"#,
        ]
        let widths = [
            #""char": -128"#, #""double": 1e+300"#, #""float": 0.5"#, #""float32": 3.4028234663852886e+38"#,
            #""float64": 5e-324"#, #""index": 9223372036854775807"#, #""int": -2147483648"#,
            #""long": -9223372036854775808"#, #""long-long": 9223372036854775807"#, #""nan": nan"#, #""short": -32768"#,
            #""sint16": -32768"#, #""sint32": -2147483648"#, #""sint64": -9223372036854775808"#, #""sint8": -128"#,
        ]
        let deepest = String(repeating: #"{"in": "#, count: 19) + "{" + String(repeating: "}", count: 20)
        let ownDictionary = #"{"array": ["0", "1", ["0"]], "dictionary": {"n": 1}}"#
        let samples = [
            ("every-type", "{\(everyType.joined(separator: ", "))}"), ("widths", "{\(widths.joined(separator: ", "))}"),
            ("foundation", #"{"array": ["x"], "big": 18446744073709551615, "bool": true, "data": data []}"#),
            ("nested-20", deepest), ("empty", "{}"), ("-", "NULL"), ("changing", #"{"key": "before"}"#),
            // A client's own subclasses, which store nothing. From the second time on, values that CoreFoundation has
            // handed out before are freed.
            ("own-dictionary", ownDictionary), ("own-dictionary", ownDictionary), ("own-dictionary", ownDictionary),
            ("own-dictionary", ownDictionary), ("own-dictionary", ownDictionary),
            ("own-inside", #"{"a": {"array": ["0"]}}"#),
        ]
        try await app.perform("add distributed 1 n - 2")
        for (sample, _) in samples { try await app.perform("post distributed n - \(sample) false") }
        let received = try await app.everythingHeard().map { heard in
            String((heard.split(separator: "userInfo ").last ?? "").dropLast(", main".count))
        }
        #expect(received == samples.map(\.1))
    }

    // CF-U1, CF-U2, CF-X6
    @Test("a value that cannot be sent is not posted, and the error names its place")
    func refused() async throws {
        let refusals = [
            ("- set-inside", #"userInfo["a"][2]: of type CFSet. A property list holds"#),
            ("- number-key", "userInfo: a key of type NSNumber. A property list holds"),
            ("- too-big", #"userInfo["n"]: an integer beyond Int64.min or UInt64.max."#),
            ("- same-keys", "userInfo[\"\u{E9}\"]: a second key that is equal as String."),
            ("- cycle", #"["self"]["self"]…: nested more than 20 deep, or contained in itself."#),
            ("- nested-21", #"["in"]["in"]…: nested more than 20 deep"#),
            ("- own-cycle", "[0][0]…: nested more than 20 deep"),
            ("- null-object", #"userInfo["n"]: of type NSNull."#),
            ("- uuid", #"userInfo["n"]: of type NSUUID."#),
            ("- swift-object", #"userInfo["n"]: of type PlainObject."#),
            ("- surrogate-value", #"userInfo["n"]: a text with an unpaired surrogate"#),
            ("- surrogate-key", "userInfo: a key with a text with an unpaired surrogate"),
            ("- too-long", #"userInfo["n"]: a text of 16777217 UTF-16 units"#),
            ("number -", "object is a CFNumber; it must be a CFString"),
            ("surrogate -", "object is a text with an unpaired surrogate, which is not Unicode text"),
        ]
        try await app.perform("add distributed 1 n - 2")
        for (arguments, _) in refusals { try await app.perform("post distributed n \(arguments) false") }
        #expect(try await app.everythingHeard() == [])
        try await eventually("all are reported") { app.failures.split(separator: "\n").count >= refusals.count }
        for (line, (_, message)) in zip(app.failures.split(separator: "\n"), refusals) {
            #expect(line.hasPrefix("CFNotificationCenterPostNotification: ") && line.contains(message))
        }
    }
}
