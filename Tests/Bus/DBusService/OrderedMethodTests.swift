import NotifyCenterTestKit
import Testing

@testable import DBus
@testable import DBusService

@Suite("Methods that receive their calls in order")
struct OrderedMethodTests {
    @Test("calls and signals of several threads all arrive, in order for each thread")
    func order() async throws {
        let served = try ServedBus()
        let arrived = Noted<UInt64?>()
        let count = DBusInterface.Method(
            "Count",
            in: [.init("number", "t")],
            inOrder: { call, _ in arrived.note(call.arguments[0].unsignedValue) }
        )
        try served.serve([count])
        let lease = try await served.server.addMatch(.ping)
        let handler = served.server.onSignal { message in
            guard message.interface == "org.example.Ping" else { return }
            arrived.note((try? message.arguments())?.first?.unsignedValue)
        }
        try await withThrowingTaskGroup { group in
            for thread in 0..<8 as Range<UInt64> {
                group.addTask {
                    for number in 0..<500 as Range<UInt64> {
                        try send([.uint64(thread * 1000 + number)], asCall: number % 2 == 0, on: served)
                    }
                }
            }
            try await group.waitForAll()
        }
        try await eventually("all arrive") { arrived.all.count == 4000 }
        for thread in 0..<8 as Range<UInt64> {
            let numbers = arrived.all.compactMap { $0 }.filter { $0 / 1000 == thread }
            #expect(numbers == Array(thread * 1000..<thread * 1000 + 500))
        }
        withExtendedLifetime((served, lease, handler)) {}
    }

    private func send(_ arguments: [DBusValue], asCall: Bool, on served: ServedBus) throws {
        if asCall {
            let name = served.server.uniqueName
            try served.client.send(try .ofObject("Count", arguments, at: name, options: [.noReply]))
        } else {
            let (path, interface) = ("/a", "org.example.Ping")
            let signal = try DBusMessage.signal(path: path, interface: interface, member: "Ping", arguments: arguments)
            try served.client.send(signal)
        }
    }

    @Test("a user's groups are those of the machine; an unknown user has none")
    func groups() {
        #expect(UserGroups.of(0).contains(0))
        #expect(UserGroups.of(3_999_999_999) == [])
    }
}
