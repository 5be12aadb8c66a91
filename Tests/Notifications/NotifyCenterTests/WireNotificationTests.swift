import Testing

@testable import DBus
@testable import NotifyCenter

@Suite("Every property-list value survives the wire")
struct WireNotificationTests {
    private func receive(
        _ message: borrowing DBusMessage,
        _ kind: WireKind = .distributed
    ) -> WireNotification.Reception {
        var last: WireNotification.LastName?
        return WireNotification.receive(message, kind: kind, last: &last)
    }

    private func roundTrip(
        _ name: String = "n",
        object: String? = nil,
        userInfo: UserInfo? = nil
    ) throws -> WireNotification {
        let message = try WireNotification.message(
            .distributed,
            name: NotificationName(name),
            object: object,
            userInfo: userInfo
        )
        guard case .notification(let notification) = receive(message) else {
            throw Issue.record("not received") as? any Error ?? CancellationError()
        }
        return notification
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
    @Test("a missing, an empty and a full object or userInfo differ")
    func absence() throws {
        #expect(try roundTrip().object == nil)
        #expect(try roundTrip(object: "").object?.text == "")
        #expect(try roundTrip(object: "o").object?.text == "o")
        #expect(try roundTrip().userInfo == nil)
        #expect(try roundTrip(userInfo: [:]).userInfo == [:])
    }

    @Test("U+0000 and backslashes in name and object survive", arguments: ["a\0b", "\\0", "\\\0\\\\0", "\0"])
    func nul(text: String) throws {
        let notification = try roundTrip(text, object: text)
        #expect(notification.name == NotificationName(text))
        #expect(notification.object?.text == text)
        #expect(try roundTrip("plain", object: text).object?.text == text)
        #expect(try roundTrip(text).name == NotificationName(text))
    }

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
        for deep in full + [20, 25, 100, 5000].map(nested) {
            let error = #expect(throws: DBusError.self) { try roundTrip(userInfo: deep) }
            #expect(error?.code == .invalidArgument)
        }
        let error = #expect(throws: DBusError.self) {
            try roundTrip(userInfo: ["data": .data(Array(repeating: 0, count: 17 * 1024 * 1024))])
        }
        #expect(error?.code == .tooLarge)
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
            let message = try DBusMessage.signal(
                path: "/org/notifycenter",
                interface: "org.notifycenter.Distributed1.n",
                member: "Posted",
                arguments: [.string("n"), .string(""), .uint32(0), .fields(["key": value])]
            )
            guard case .refused(.noDate) = receive(message) else {
                Issue.record("taken for a notification")
                continue
            }
        }
    }

    /// Returns a userInfo with which a notification of the name `n` has this size, as ``NotificationSize`` counts.
    private func userInfo(ofNotificationWith bytes: Int) -> UserInfo {
        // The subtracted parts are the notification with its name, the dictionary, the key and the data.
        ["k": .data(Array(repeating: 0, count: bytes - (64 + 1) - 64 - (64 + 1) - 64))]
    }

    // CF-U9
    @Test("poster and receiver have the same limit, to the byte")
    func limit() throws {
        let largest = userInfo(ofNotificationWith: NotificationSize.maximum)
        let received = try roundTrip(userInfo: largest)
        #expect(received.userInfo == largest)
        #expect(received.bytes == NotificationSize.maximum)
        let error = #expect(throws: DBusError.self) {
            try roundTrip(userInfo: userInfo(ofNotificationWith: NotificationSize.maximum + 1))
        }
        #expect(error?.code == .tooLarge)
        let text = String(repeating: "x", count: NotificationSize.maximum - 64 - 1)
        #expect(try roundTrip(object: text).object?.text == text)
        let tooLong = #expect(throws: DBusError.self) { try roundTrip(object: text + "x") }
        #expect(tooLong?.code == .tooLarge)
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
        for arguments in [
            [.string("n"), .string(""), .uint32(0), .fields(["k": .bytes(bytes)])],
            [.string("n"), .string(String(repeating: "x", count: NotificationSize.maximum))],
            [.string(String(repeating: "x", count: NotificationSize.maximum))],
        ] as [[DBusValue]] {
            let message = try DBusMessage.signal(
                path: "/org/notifycenter",
                interface: "org.notifycenter.Distributed1.n",
                member: "Posted",
                arguments: arguments
            )
            guard case .refused(.tooLarge) = receive(message) else {
                Issue.record("taken for a notification, or for a malformed one")
                continue
            }
        }
    }

    // CF-W1, CF-D7
    @Test("the Darwin center reads the name and ignores further arguments of any type")
    func darwinBodies() throws {
        for rest in [
            [], [.int32(1)], [.array([.variant(.int64(1))], of: "v")], [.string("o"), .string("p")],
            [.string("o"), .uint32(0), .fields(["k": .structure([.byte(1), .byte(2)])])],
        ] as [[DBusValue]] {
            let message = try DBusMessage.signal(
                path: "/org/notifycenter",
                interface: "org.notifycenter.Darwin1.n",
                member: "Posted",
                arguments: [.string("n")] + rest
            )
            guard case .notification(let notification) = receive(message, .darwin) else {
                Issue.record("ignored")
                continue
            }
            #expect(notification.name == "n")
            #expect(notification.object == nil && notification.userInfo == nil)
        }
        let escaped = try WireNotification.message(.darwin, name: "a\0b\\")
        guard case .notification(let notification) = receive(escaped, .darwin) else {
            Issue.record("ignored")
            return
        }
        #expect(notification.name == "a\0b\\")
    }

    // CF-B9
    @Test("the cached name is not confused with another or accepted under its interface")
    func lastName() throws {
        var last: WireNotification.LastName?
        func receive(_ name: String, under other: String) throws -> NotificationName? {
            let message = try DBusMessage.signal(
                path: "/org/notifycenter",
                interface: InterfaceName(NotificationName(other), prefix: WireKind.darwin.prefix).description,
                member: "Posted",
                arguments: [.string(name)]
            )
            guard case .notification(let notification) = WireNotification.receive(message, kind: .darwin, last: &last)
            else { return nil }
            return notification.name
        }
        let names = ["com.example.one", "com.example.two", "", "é", String(repeating: "long.", count: 200)]
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
        let interface = "org.notifycenter.Distributed1.n"
        func receive(_ arguments: [DBusValue]) throws -> WireNotification? {
            let message = try DBusMessage.signal(
                path: "/org/notifycenter",
                interface: interface,
                member: "Posted",
                arguments: arguments
            )
            guard case .notification(let notification) = self.receive(message) else {
                return nil
            }
            return notification
        }
        #expect(try receive([.string("n")])?.name == "n")
        #expect(try receive([.string("n"), .string("o")])?.object?.text == "o")
        let info = try receive([.string("n"), .string(""), .uint32(0), .fields(["a": .int32(-1), "b": .byte(2)])])
        #expect(info?.userInfo == ["a": -1, "b": 2])
        #expect(info?.object == nil)
        // Unknown flags of a later version.
        let flags = try receive([.string("n"), .string("o"), .uint32(.max), .dictionary([], key: "s", value: "v")])
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
            let message = try DBusMessage.signal(
                path: "/org/notifycenter",
                interface: "org.notifycenter.Distributed1.n",
                member: "Posted",
                arguments: arguments
            )
            guard case .refused(.malformed) = receive(message) else {
                Issue.record("\(arguments) are taken for a notification")
                continue
            }
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
