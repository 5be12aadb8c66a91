import NotifyCenter
import NotifyCenterTestKit
import Testing

@Suite("What a userInfo holds", .timeLimit(.minutes(10)))
struct UserInfoTests {
    private let bus: PrivateBus
    private let app: App

    init() throws {
        bus = try PrivateBus()
        app = try App(bus)
    }

    /// What the app receives when it posts a sample to itself.
    private func roundTrip(_ sample: String) async throws -> String? {
        try await app.perform("add distributed 1 n - 2", "post distributed n - \(sample) false")
        let heard = try await app.everythingHeard().last
        return heard?.split(separator: "userInfo ").last.map { String($0.dropLast(", main".count)) }
    }

    // CF-U1, CF-U7, CF-D8
    @Test("every type of a property list arrives unchanged, and different types stay different")
    func everyType() async throws {
        let expected = [
            #""": {}"#, #""array": [true, {"in": []}]"#, #""big": 18446744073709551615"#, #""data": data [0, 255]"#,
            #""date": date 0.0625"#, #""double": 1.0"#, #""false": false"#, #""no-data": data []"#, #""one": 7"#,
            #""small": -9223372036854775808"#, #""text": "a\0b😀""#, #""true": true"#,
        ]
        #expect(try await roundTrip("every-type") == "{\(expected.joined(separator: ", "))}")
    }

    // CF-U1
    @Test("Foundation's objects are accepted as CoreFoundation's")
    func foundation() async throws {
        #expect(
            try await roundTrip("foundation")
                == #"{"array": ["x"], "big": 18446744073709551615, "bool": true, "data": data []}"#
        )
    }

    // CF-U1
    @Test("a client's own subclasses of Foundation's containers are read, though they store nothing")
    func ownSubclasses() async throws {
        // The same object each time: from the second time on, values that CoreFoundation has handed out before are freed.
        for _ in 0..<5 {
            let expected = #"{"array": ["0", "1", ["0"]], "dictionary": {"n": 1}}"#
            #expect(try await roundTrip("own-dictionary") == expected)
        }
        #expect(try await roundTrip("own-inside") == #"{"a": {"array": ["0"]}}"#)
    }

    // CF-U7
    @Test("numbers of every width arrive")
    func widths() async throws {
        let expected = [
            #""char": -128"#, #""double": 1e+300"#, #""float": 0.5"#, #""float32": 3.4028234663852886e+38"#,
            #""float64": 5e-324"#, #""index": 9223372036854775807"#, #""int": -2147483648"#,
            #""long": -9223372036854775808"#, #""long-long": 9223372036854775807"#, #""nan": nan"#, #""short": -32768"#,
            #""sint16": -32768"#, #""sint32": -2147483648"#, #""sint64": -9223372036854775808"#, #""sint8": -128"#,
        ]
        #expect(try await roundTrip("widths") == "{\(expected.joined(separator: ", "))}")
    }

    // CF-U1
    @Test("20 nested dictionaries arrive")
    func deepest() async throws {
        let expected = String(repeating: #"{"in": "#, count: 19) + "{" + String(repeating: "}", count: 20)
        #expect(try await roundTrip("nested-20") == expected)
    }

    // CF-U6, CF-P4
    @Test("an empty userInfo and NULL are different")
    func empty() async throws {
        #expect(try await roundTrip("empty") == "{}")
        #expect(try await roundTrip("-") == "NULL")
    }

    // CF-P12
    @Test("observers do not see what the poster changes after the post")
    func changed() async throws {
        #expect(try await roundTrip("changing") == #"{"key": "before"}"#)
    }

    // CF-U7, CF-T5
    @Test("C and Swift exchange userInfos in both directions")
    func swift() async throws {
        let sequence = try await DistributedNotifyCenter(bus: bus.bus).notifications(named: "n")
        try await app.perform("post distributed n - every-type false")
        var iterator = sequence.makeAsyncIterator()
        let everyType: UserInfo = [
            "text": "a\u{0}b\u{1F600}", "true": true, "false": false, "one": 7, "big": .unsigned(.max),
            "small": .integer(.min), "double": 1.0, "date": .date(PropertyListDate(secondsSinceReferenceDate: 0.0625)),
            "data": .data([0, 255]), "no-data": .data([]), "array": [true, ["in": []]], "": [:],
        ]
        #expect(await iterator.next()?.userInfo == everyType)
        try await app.perform("add distributed 1 m - 2")
        try DistributedNotifyCenter(bus: bus.bus).post("m", userInfo: everyType)
        try await eventually("it is heard") { app.heard.count == 1 }
        #expect(app.heard[0].contains(#""big": 18446744073709551615"#))
        #expect(app.heard[0].contains(#""double": 1.0"#))
        #expect(app.heard[0].contains(#""array": [true, {"in": []}]"#))
    }

    // CF-U1, CF-U2, CF-X6
    @Test(
        "what cannot travel is not posted, and the place is named",
        arguments: [
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
            ("- surrogate-value", #"userInfo["n"]: a text that holds a surrogate that stands alone"#),
            ("- surrogate-key", "userInfo: a key with a text that holds a surrogate that stands alone"),
            ("- too-long", #"userInfo["n"]: a text of 16777217 UTF-16 units"#),
            ("number -", "object is a CFNumber; it must be a CFString"),
            ("surrogate -", "object is a text that holds a surrogate that stands alone, which is no Unicode text"),
        ]
    )
    func refused(arguments: String, message: String) async throws {
        try await app.perform("add distributed 1 n - 2", "post distributed n \(arguments) false")
        #expect(try await app.everythingHeard() == [])
        try await eventually("it is said") {
            app.failures.contains("CFNotificationCenterPostNotification: ") && app.failures.contains(message)
        }
    }
}
