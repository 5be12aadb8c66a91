import Testing

@testable import DBus

@Suite("Messages carry every D-Bus type and refuse other values")
struct DBusMessageTests {
    private func message(_ arguments: [DBusValue]) throws(DBusError) -> DBusMessage {
        try .signal(path: "/a", interface: "a.b", member: "C", arguments: arguments)
    }

    @Test("every type survives encoding and decoding")
    func roundTrip() throws {
        let values: [DBusValue] = [
            .byte(255), .boolean(true), .int16(.min), .uint16(.max), .int32(.min), .uint32(.max), .int64(.min),
            .uint64(.max), .double(-0.0), .string("é𝄞"), .objectPath("/a/b"), .signature("a{sv}"), .bytes([]),
            .bytes([0, 1, 255]), .array([], of: "s"), .array([.string("x")], of: "s"),
            .structure([.byte(1), .structure([.string("")])]),
            .dictionary([.init(.uint32(1), .array([.variant(.bytes([7]))], of: "v"))], key: "u", value: "av"),
            .dictionary([], key: "s", value: "v"), .variant(.variant(.boolean(false))),
        ]
        let message = try message(values)
        #expect(try message.arguments() == values)
        #expect(message.signature == values.map(\.signature).joined())
    }

    @Test("a value, size or name that D-Bus cannot carry is refused early")
    func refusals() {
        let values: [DBusValue] = [
            .string("a\0b"), .objectPath("no/path"), .signature("{"), .structure([]), .array([.byte(1)], of: "s"),
            .array([], of: "not a type"), .array([], of: "s\0"),
            .dictionary([.init(.string("a"), .byte(1))], key: "s", value: "v"), .dictionary([], key: "v", value: "s"),
            (0..<70).reduce(DBusValue.byte(0)) { value, _ in .variant(value) },
        ]
        for value in values {
            let error = failure { () throws(DBusError) in _ = try message([value]) }
            #expect(error?.code == .invalidArgument, "\(value)")
        }
        let large = DBusValue.bytes(Array(repeating: 0, count: DBusValueLimits.bodyBytes + 1))
        #expect(failure { () throws(DBusError) in _ = try message([large]) }?.code == .tooLarge)
        for interface in ["", "a", "a..b", "a.1", "a.b\0", "é.b"] {
            let error = failure { () throws(DBusError) in
                _ = try DBusMessage.signal(path: "/a", interface: interface, member: "C")
            }
            #expect(error?.code == .invalidArgument, "\(interface)")
        }
    }

    @Test(
        "the called peer, the bus and a proxy without a name may reply to a call",
        arguments: [
            ("org.freedesktop.DBus", [nil, "org.freedesktop.DBus"]), (":1.7", [nil, "org.freedesktop.DBus", ":1.7"]),
        ] as [(String, [String?])]
    )
    func repliers(destination: String, expected: [String?]) throws {
        let call = try DBusMessage.methodCall(destination: destination, path: "/a", interface: "a.b", member: "C")
        let senders: [String?] = [nil, "org.freedesktop.DBus", ":1.7", ":1.8"]
        var repliers: [String?] = []
        for sender in senders where call.mayBeAnswered(by: sender) { repliers.append(sender) }
        #expect(repliers == expected)
    }

    @Test("a dictionary with a repeated key is read without a trap; the last value counts")
    func duplicateKeys() throws {
        let value = DBusValue.dictionary(
            [.init(.string("k"), .variant(.byte(1))), .init(.string("k"), .variant(.byte(2)))],
            key: "s",
            value: "v"
        )
        let message = try message([value])
        #expect(try message.arguments().first?.fieldsValue == ["k": .byte(2)])
    }

    @Test("a message's size is known without reading its arrays", arguments: [0, 1, 1000, 1_000_000])
    func size(bytes: Int) throws {
        let plain = try message([
            .string(String(repeating: "x", count: bytes)), .variant(.bytes(Array(repeating: 0, count: bytes))),
            .array(Array(repeating: .variant(.byte(1)), count: bytes), of: "v"),
        ])
        // A variant of a byte takes four bytes on the wire.
        #expect((bytes * 6 - 300...bytes * 6 + 400).contains(plain.size))
    }
}
