import NotifyCenterTestKit
import Synchronization
import Testing

@testable import Basics
@testable import DBus

@Suite("Taking a text out of a call")
struct TakenTextTests {
    private let bus: PrivateBus
    private let client: DBusConnection
    private let server: DBusConnection

    init() throws {
        bus = try PrivateBus()
        client = try DBusConnection.open(bus.bus)
        server = try DBusConnection.open(bus.bus)
    }

    /// Sends a call to a method that takes “secret”. Returns the text, and the arguments that remain.
    private func receive(_ argument: DBusValue) async throws -> (text: String?, arguments: [DBusValue]) {
        let found = Locked<(String?, [DBusValue])>((nil, []))
        let method = DBusInterface.Method(
            "Take",
            in: [.init("request", argument.signature)],
            reading: { call, reply in
                let text = call.takeText("secret") { String(decoding: $0, as: UTF8.self) }
                found.withLock { $0 = (text, (try? call.arguments()) ?? []) }
                reply.send(.success([]))
            }
        )
        let object = try server.export([DBusInterface("org.example.Taker", methods: [method])], at: "/taker")
        let call = try DBusMessage.methodCall(
            destination: try #require(server.uniqueName),
            path: "/taker",
            interface: "org.example.Taker",
            member: "Take",
            arguments: [argument]
        )
        _ = try await client.call(call)
        withExtendedLifetime(object) {}
        return found.withLock { $0 }
    }

    @Test("a taken text is no longer in the message, and the rest is unchanged")
    func taken() async throws {
        let found = try await receive(
            .fields(["name": .string("ada"), "secret": .string("horse"), "wait": .double(1)])
        )
        #expect(found.text == "horse")
        let rest: [String: DBusValue] = ["name": .string("ada"), "secret": .string(""), "wait": .double(1)]
        #expect(found.arguments.first?.fieldsValue == rest)
    }

    @Test("every occurrence of the text is taken; the last one counts")
    func twice() async throws {
        let entries = ["one", "two"].map {
            DBusValue.DictionaryEntry(.string("secret"), .variant(.string($0)))
        }
        let found = try await receive(.dictionary(entries, key: "s", value: "v"))
        #expect(found.text == "two")
        let wiped = DBusValue.DictionaryEntry(.string("secret"), .variant(.string("")))
        #expect(found.arguments == [.dictionary([wiped, wiped], key: "s", value: "v")])
    }

    @Test(
        "nothing is taken from a value that is not text or not a dictionary of variants",
        arguments: [
            DBusValue.fields(["secret": .uint32(7)]), .fields([:]), .string("secret"),
            .dictionary([.init(.string("secret"), .string("x"))], key: "s", value: "s"),
        ]
    )
    func otherTypes(argument: DBusValue) async throws {
        let found = try await receive(argument)
        #expect(found.text == nil)
        #expect(found.arguments == [argument])
    }
}
