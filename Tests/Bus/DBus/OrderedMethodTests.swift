import NotifyCenterTestKit
import Testing

@testable import DBus

@Suite("Methods that receive their calls in order")
struct OrderedMethodTests {
    @Test("calls and signals of one client arrive in the order of sending")
    func order() async throws {
        let served = try ServedBus()
        let arrived = Noted<UInt64?>()
        let count = DBusInterface.Method(
            "Count",
            in: [.init("number", "u")],
            inOrder: { call, _ in arrived.note(call.arguments[0].unsignedValue) }
        )
        try served.serve([count])
        let lease = try await served.server.addMatch(.ping)
        let handler = served.server.onSignal { message in
            guard message.interface == "org.example.Ping" else { return }
            arrived.note((try? message.arguments())?.first?.unsignedValue)
        }
        for number in UInt32(0)..<1000 {
            let arguments = [DBusValue.uint32(number)]
            if number.isMultiple(of: 2) {
                let name = served.server.uniqueName
                try served.client.send(try .ofObject("Count", arguments, at: name, options: [.noReply]))
            } else {
                let signal = try DBusMessage.signal(
                    path: "/a",
                    interface: "org.example.Ping",
                    member: "Count",
                    arguments: arguments
                )
                try served.client.send(signal)
            }
        }
        try await eventually { arrived.all.count == 1000 }
        #expect(arrived.all.compactMap { $0 } == Array(0..<1000))
        withExtendedLifetime((served, lease, handler)) {}
    }

    @Test("a user's groups are those of the machine; an unknown user has none")
    func groups() {
        #expect(UserGroups.of(0).contains(0))
        #expect(UserGroups.of(3_999_999_999) == [])
    }
}
