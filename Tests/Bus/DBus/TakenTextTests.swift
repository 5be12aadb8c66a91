import NotifyCenterTestKit
import Testing

@testable import DBus
@testable import DBusService

@Suite("Taking a text out of a call")
struct TakenTextTests {
    private static func secrets(_ texts: String...) -> DBusValue {
        let entries = texts.map { DBusValue.DictionaryEntry(.string("secret"), .variant(.string($0))) }
        return .dictionary(entries, key: "s", value: "v")
    }

    /// An argument, the text that is taken from it, and the rest.
    private static let cases: [(DBusValue, String?, DBusValue)] = [
        (
            .fields(["name": .string("ada"), "secret": .string("horse"), "wait": .double(1)]), "horse",
            .fields(["name": .string("ada"), "secret": .string(""), "wait": .double(1)])
        ),
        // The last occurrence counts.
        (secrets("one", "two"), "two", secrets("", "")),
        // Only text in a dictionary of variants is taken.
        (.fields(["secret": .uint32(7)]), nil, .fields(["secret": .uint32(7)])),
        (.fields([:]), nil, .fields([:])),
        (.string("secret"), nil, .string("secret")),
        (
            .dictionary([.init(.string("secret"), .string("x"))], key: "s", value: "s"), nil,
            .dictionary([.init(.string("secret"), .string("x"))], key: "s", value: "s")
        ),
    ]

    @Test("each occurrence of a taken text leaves the message, and the rest is unchanged")
    func taken() async throws {
        let served = try ServedBus()
        let (texts, rests) = (Noted<String?>(), Noted<[DBusValue]>())
        let methods = Self.cases.enumerated().map { number, item in
            DBusInterface.Method(
                "Take\(number)",
                in: [.init("request", item.0.signature)],
                reading: { call, reply in
                    texts.note(call.takeText("secret") { String(decoding: $0, as: UTF8.self) })
                    rests.note((try? call.arguments()) ?? [])
                    reply.send(.success([]))
                }
            )
        }
        try served.serve(methods)
        for (number, item) in Self.cases.enumerated() {
            _ = try await served.client.call(try served.call("Take\(number)", [item.0]))
        }
        #expect(texts.all == Self.cases.map { $0.1 })
        #expect(rests.all == Self.cases.map { [$0.2] })
    }
}
