import Testing

@testable import DBus
@testable import NotifyCenter

@Suite("Every property-list value survives the wire")
struct WireNotificationTests {
    private func receive(
        _ message: borrowing DBusMessage,
        _ kind: WireKind = .distributed
    ) throws(FormError) -> WireNotification? {
        var last: WireNotification.LastName?
        switch WireNotification.receive(message, kind: kind, last: &last) {
        case .notification(let notification): return notification
        case .foreign: return nil
        case .refused(let error): throw error
        }
    }

    private func received(_ arguments: [DBusValue]) throws -> WireNotification? {
        let message = try DBusMessage.post(arguments)
        return try receive(message)
    }

    private func roundTrip(
        _ name: String = "n",
        object: String? = nil,
        userInfo: UserInfo? = nil
    ) throws -> WireNotification {
        let name = NotificationName(name)
        let message = try WireNotification.message(.distributed, name: name, object: object, userInfo: userInfo)
        let received = try receive(message)
        return try #require(received)
    }

    /// Expects that nothing is sent of a notification.
    private func expectRefusal(
        _ code: DBusError.Code,
        _ name: String = "n",
        object: String? = nil,
        userInfo: UserInfo? = nil,
        sourceLocation: SourceLocation = #_sourceLocation
    ) {
        let error = #expect(throws: DBusError.self, sourceLocation: sourceLocation) {
            try roundTrip(name, object: object, userInfo: userInfo)
        }
        #expect(error?.code == code, sourceLocation: sourceLocation)
    }

    // CF-U7
    @Test(
        "types and values survive encoding and decoding",
        arguments: [
            PropertyListValue.string(""), .string("é𝄞"), .string("a\0b"), .integer(.min), .integer(.max), .integer(1),
            .unsigned(.max), .double(1.0), .double(-0.0), .double(.infinity), .bool(true), .bool(false),
            .date(.init(secondsSinceReferenceDate: 785_000_000.123_456_7)),
            .date(.init(secondsSinceReferenceDate: -1e-300)), .data([]), .data([0, 255]), .array([]), .dictionary([:]),
            .array([1, 1.0, true, "x", [], [:]]), .dictionary(["a": ["b": ["c": [1, "d"]]], "": ""]),
            .dictionary(["k\0": 1, "plain": .data([1])]),
        ]
    )
    func values(value: PropertyListValue) throws {
        let received = try #require(try roundTrip(userInfo: ["key": value]).userInfo?["key"])
        #expect(received == value)
        #expect(kind(received) == kind(value), "the type too")
    }

    private func kind(_ value: PropertyListValue) -> String { String(String(describing: value).prefix { $0 != "(" }) }

    // CF-U6, CF-P2
    @Test("a missing, an empty and a full object or userInfo differ, and U+0000 survives")
    func texts() throws {
        for text in ["a\0b", "\\0", "\\\0\\\\0", "\0"] {
            for (name, object) in [(text, text), ("plain", text), (text, nil)] as [(String, String?)] {
                let notification = try roundTrip(name, object: object)
                #expect(notification.name == NotificationName(name) && notification.object?.text == object, "\(text)")
            }
        }
        for object in [nil, "", "o"] { #expect(try roundTrip(object: object).object?.text == object) }
        for userInfo in [nil, [:]] as [UserInfo?] { #expect(try roundTrip(userInfo: userInfo).userInfo == userInfo) }
    }

    /// Returns a userInfo with which a notification of the name `n` has this size, as ``NotificationSize`` counts.
    private func userInfo(ofNotificationWith bytes: Int) -> UserInfo {
        // The subtracted parts are the notification with its name, the dictionary, the key and the data.
        ["k": .data(Array(repeating: 0, count: bytes - (64 + 1) - 64 - (64 + 1) - 64))]
    }

    // CF-U9
    @Test("a payload that is too deep or too large is refused before anything is sent")
    func bounds() throws {
        func nested(_ levels: Int) -> UserInfo {
            (0..<levels).reduce(["leaf": 1]) { inner, _ in ["level": .dictionary(inner)] }
        }
        #expect(try roundTrip(userInfo: nested(19)).userInfo == nested(19))
        // The twentieth container may hold no other container, not even an empty one.
        let full = [PropertyListValue.array([]), .dictionary([:])].map { empty in
            (0..<19).reduce(["empty": empty]) { inner, _ in ["level": .dictionary(inner)] }
        }
        for deep in full + [20, 25, 100, 5000].map(nested) { expectRefusal(.invalidArgument, userInfo: deep) }
        // Poster and receiver have the same limit, to the byte.
        let largest = userInfo(ofNotificationWith: NotificationSize.maximum)
        let received = try roundTrip(userInfo: largest)
        #expect(received.userInfo == largest && received.bytes == NotificationSize.maximum)
        expectRefusal(.tooLarge, userInfo: userInfo(ofNotificationWith: NotificationSize.maximum + 1))
        let text = String(repeating: "x", count: NotificationSize.maximum - 64 - 1)
        #expect(try roundTrip(object: text).object?.text == text)
        expectRefusal(.tooLarge, object: text + "x")
        let large = String(repeating: "x", count: NotificationSize.maximum)
        expectRefusal(.tooLarge, large)
        for large in [["k": .string(large)], [large: 1]] as [UserInfo] { expectRefusal(.tooLarge, userInfo: large) }
    }

    // CF-U8: Foundation ends a process that prints such a date.
    @Test(
        "a date that is NaN or infinite is refused when posted and when received",
        arguments: [Double.nan, .infinity, -.infinity]
    )
    func noDate(seconds: Double) throws {
        let date = PropertyListValue.date(PropertyListDate(secondsSinceReferenceDate: seconds))
        for value in [date, [date], ["in": date]] {
            let error = #expect(throws: DBusError.self) { try roundTrip(userInfo: ["key": value]) }
            #expect(error?.code == .invalidArgument)
            #expect(error?.message == "the userInfo holds a date that is NaN or infinite")
        }
        let foreign = DBusValue.structure([.double(seconds)])
        for value in [foreign, .variant(foreign), .array([.variant(foreign)], of: "v"), .fields(["in": foreign])] {
            let arguments: [DBusValue] = [.string("n"), .string(""), .uint32(0), .fields(["key": value])]
            #expect(throws: FormError.noDate) { try received(arguments) }
        }
    }

    // CF-U8, CF-U9
    @Test("a receiver counts sizes as the poster does and refuses one byte too many")
    func size() throws {
        var generator = SplitMix(state: 5)
        func value(_ depth: Int) -> PropertyListValue {
            let text = ["", "a\0b", "é𝄞", String(repeating: "x", count: 100)].randomElement(using: &generator) ?? ""
            switch Int.random(in: 0..<(depth < 4 ? 9 : 7), using: &generator) {
            case 0: return .integer(.random(in: .min ... .max, using: &generator))
            case 1: return .unsigned(.max)
            case 2: return .double(.random(in: 0...1, using: &generator))
            case 3: return .bool(.random(using: &generator))
            case 4: return .date(.init(secondsSinceReferenceDate: 1))
            case 5: return .data(Array(repeating: 7, count: Int.random(in: 0..<50, using: &generator)))
            case 6: return .string(text)
            case 7: return .array((0..<4).map { _ in value(depth + 1) })
            default: return .dictionary([text: value(depth + 1), "k": value(depth + 1)])
            }
        }
        for _ in 0..<200 {
            let userInfo: UserInfo = ["a": value(0), "b": value(0)]
            var size = NotificationSize()
            try size.add("n".utf8.count + "object".utf8.count)
            _ = try PayloadCoding.encode(userInfo, size: &size)
            let received = try roundTrip(object: "object", userInfo: userInfo)
            #expect(received.userInfo == userInfo)
            #expect(received.bytes == size.bytes)
        }
        let bytes = [UInt8](repeating: 0, count: NotificationSize.maximum)
        let text = DBusValue.string(String(repeating: "x", count: NotificationSize.maximum))
        let tooLarge: [[DBusValue]] = [
            [.string("n"), .string(""), .uint32(0), .fields(["k": .bytes(bytes)])], [.string("n"), text], [text],
        ]
        for arguments in tooLarge { #expect(throws: FormError.tooLarge) { try received(arguments) } }
    }

    // CF-W1, CF-D7
    @Test("the Darwin center reads the name and ignores further arguments of any type")
    func darwinBodies() throws {
        for rest in [
            [], [.int32(1)], [.array([.variant(.int64(1))], of: "v")], [.string("o"), .string("p")],
            [.string("o"), .uint32(0), .fields(["k": .structure([.byte(1), .byte(2)])])],
        ] as [[DBusValue]] {
            let message = try DBusMessage.post([.string("n")] + rest, on: "org.notifycenter.Darwin1.n")
            let notification = try receive(message, .darwin)
            #expect(notification?.name == "n")
            #expect(notification?.object == nil && notification?.userInfo == nil)
        }
        let escaped = try WireNotification.message(.darwin, name: "a\0b\\")
        let notification = try receive(escaped, .darwin)
        #expect(notification?.name == "a\0b\\")
    }

    // CF-B9, CF-B1, CF-M3
    @Test("the cached name is not confused with another or accepted under its interface")
    func lastName() throws {
        var last: WireNotification.LastName?
        func receive(_ name: String, under other: String) throws -> NotificationName? {
            let interface = InterfaceName(NotificationName(other), prefix: WireKind.darwin.prefix).description
            let message = try DBusMessage.post([.string(name)], on: interface)
            guard case .notification(let notification) = WireNotification.receive(message, kind: .darwin, last: &last)
            else { return nil }
            return notification.name
        }
        // The long names have digests instead of escapes.
        let long = ["a", "b"].map { String(repeating: $0, count: 300) }
        let names = ["com.example.one", "com.example.two", "", "é"] + long
        for name in names {
            for other in names {
                for _ in 0..<2 {
                    #expect(try receive(name, under: name) == NotificationName(name))
                    #expect(try receive(other, under: name) == (other == name ? NotificationName(name) : nil))
                }
            }
        }
    }

    @Test("a tool may send only the name, and may use other integer types")
    func leniency() throws {
        #expect(try received([.string("n")])?.name == "n")
        #expect(try received([.string("n"), .string("o")])?.object?.text == "o")
        let info = try received([.string("n"), .string(""), .uint32(0), .fields(["a": .int32(-1), "b": .byte(2)])])
        #expect(info?.userInfo == ["a": -1, "b": 2])
        #expect(info?.object == nil)
        // Unknown flags of a later version.
        let flags = try received([.string("n"), .string("o"), .uint32(.max), .dictionary([], key: "s", value: "v")])
        #expect(flags?.userInfo == [:])
    }

    @Test("signals with arguments of other types are malformed, and none traps")
    func hostile() throws {
        let start: [DBusValue] = [.string("n"), .string("o"), .uint32(0)]
        let numbersAsKeys = DBusValue.dictionary([.init(.int32(1), .variant(.int32(2)))], key: "i", value: "v")
        let payloads: [DBusValue] = [
            .string("info"), .array([], of: "s"), .fields(["a": .structure([.byte(1), .byte(2)])]),
            .fields(["a": .structure([.bytes([0xff, 0xfe])])]), .fields(["a": numbersAsKeys]), numbersAsKeys,
            .dictionary([.init(.uint32(1), .string("x"))], key: "u", value: "s"),
        ]
        let others: [[DBusValue]] = [
            [], [.uint32(1)], [.int32(1)], [.bytes([1])], [.variant(.string("n"))], [.string("other")],
            [.string("n"), .uint32(1)], [.string("n"), .int32(1)], [.string("n"), .string("o"), .string("flags")],
            [.string("n"), .string("o"), .int32(1)],
        ]
        for arguments in others + payloads.map({ start + [$0] }) {
            #expect(throws: FormError.malformed, "\(arguments)") { try received(arguments) }
        }
    }

    @Test("the two integer cases are one type; doubles and truth values differ")
    func equality() {
        #expect(PropertyListValue.integer(5) == .unsigned(5))
        #expect(PropertyListValue.integer(5).hashValue == PropertyListValue.unsigned(5).hashValue)
        #expect(PropertyListValue.integer(1) != .double(1))
        #expect(PropertyListValue.integer(1) != .bool(true))
        #expect(PropertyListValue.integer(-1) != .unsigned(.max))
    }
}
