import Testing

@testable import DBusTransport
@testable import NotifyCenter

@Suite("Every property-list value survives the wire")
struct WireNotificationTests {
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
        guard case .notification(let notification) = WireNotification.receive(message, kind: .distributed) else {
            throw Issue.record("not received") as? any Error ?? CancellationError()
        }
        return notification
    }

    // CF-U7
    @Test(
        "types and values come back exactly",
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
    @Test("nothing, empty and full are told apart, for object and userInfo")
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

    @Test("a payload that is nested too deep or too large is refused with the reason, before anything is sent")
    func bounds() throws {
        func nested(_ levels: Int) -> UserInfo {
            (0..<levels).reduce(["leaf": 1]) { inner, _ in ["level": .dictionary(inner)] }
        }
        #expect(try roundTrip(userInfo: nested(19)).userInfo == nested(19))
        for levels in [20, 25, 100, 5000] {
            let error = #expect(throws: DBusError.self) { try roundTrip(userInfo: nested(levels)) }
            #expect(error?.code == .invalidArgument)
        }
        let error = #expect(throws: DBusError.self) {
            try roundTrip(userInfo: ["data": .data(Array(repeating: 0, count: 17 * 1024 * 1024))])
        }
        #expect(error?.code == .tooLarge)
    }

    @Test("a tool needs to send the name alone, and may use other integer types")
    func leniency() throws {
        let interface = "org.notifycenter.Distributed1.n"
        func receive(_ arguments: [DBusValue]) throws -> WireNotification? {
            let message = try DBusMessage.signal(
                path: "/org/notifycenter",
                interface: interface,
                member: "Posted",
                arguments: arguments
            )
            guard case .notification(let notification) = WireNotification.receive(message, kind: .distributed) else {
                return nil
            }
            return notification
        }
        #expect(try receive([.string("n")])?.name == "n")
        #expect(try receive([.string("n"), .string("o")])?.object?.text == "o")
        let info = try receive([.string("n"), .string(""), .uint32(0), .fields(["a": .int32(-1), "b": .byte(2)])])
        #expect(info?.userInfo == ["a": -1, "b": 2])
        #expect(info?.object == nil)
    }

    @Test(
        "hostile messages are malformed, and nothing traps",
        arguments: [
            [], [DBusValue.uint32(1)], [.string("other")], [.string("n"), .uint32(1)],
            [.string("n"), .string("o"), .string("flags")], [.string("n"), .string("o"), .uint32(0), .string("info")],
            [.string("n"), .string("o"), .uint32(0), .fields(["a": .structure([.byte(1), .byte(2)])])],
            [.string("n"), .string("o"), .uint32(0), .fields(["a": .structure([.bytes([0xff, 0xfe])])])],
            [
                .string("n"), .string("o"), .uint32(0),
                .dictionary([.init(.uint32(1), .string("x"))], key: "u", value: "s"),
            ],
        ] as [[DBusValue]]
    )
    func hostile(arguments: [DBusValue]) throws {
        let message = try DBusMessage.signal(
            path: "/org/notifycenter",
            interface: "org.notifycenter.Distributed1.n",
            member: "Posted",
            arguments: arguments
        )
        guard case .malformed = WireNotification.receive(message, kind: .distributed) else {
            Issue.record("taken for a notification")
            return
        }
    }

    @Test("the two integer cases are one type; a double and a truth value are others")
    func equality() {
        #expect(PropertyListValue.integer(5) == .unsigned(5))
        #expect(PropertyListValue.integer(5).hashValue == PropertyListValue.unsigned(5).hashValue)
        #expect(PropertyListValue.integer(1) != .double(1))
        #expect(PropertyListValue.integer(1) != .bool(true))
        #expect(PropertyListValue.integer(-1) != .unsigned(.max))
    }
}
