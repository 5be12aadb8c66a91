import CDBus
import Foundation
import NotifyCenter
import NotifyCenterTestKit
import Testing

@testable import DBus

@Suite struct RelayTests {
    private let daemon: Daemon
    private let client: Client
    private let receiver: ChildProcess
    private let center: DistributedNotifyCenter
    private static let interface = "\(WireKind.distributed.rawValue).flood"
    private static let darwin = "\(WireKind.darwin.rawValue).a"

    init() async throws {
        daemon = try await Daemon()
        client = try Client(daemon.bus)
        center = DistributedNotifyCenter(bus: daemon.bus.bus)
        receiver = try await .notifydClient(on: daemon.bus)
        #expect(try await receiver.answer("Relay as:\(Self.interface),\(Self.darwin)") == "ok ")
    }

    /// Posts more than the 16 MiB that a receiver may leave unread. notifyd serves others in between.
    private func flood() async throws {
        let data = PropertyListValue.data(Array(repeating: 7, count: 500_000))
        for _ in 0..<60 {
            try center.post("flood", userInfo: ["data": data])
            try await center.flush()
            _ = try await client.state("served")
        }
    }

    private func posts(_ interface: String) -> Int { receiver.lines.count { $0 == "posted \(interface)" } }

    @Test func aReceiverThatDoesNotReadGetsNoMoreAndOthersAreServed() async throws {
        receiver.suspend()
        try await flood()
        #expect(try await client.dropped() > 0)
        // The receiver gets each Darwin name once more, however often it is posted meanwhile.
        let darwin = DarwinNotifyCenter(bus: daemon.bus.bus)
        for _ in 0..<3 { try darwin.post("a") }
        try await darwin.flush()
        try await client.set("served", 1)
        #expect(try await client.state("served") == 1)
        receiver.resume()
        try await receiver.line { $0 == "posted \(Self.darwin)" }
        #expect(posts(Self.darwin) == 1)
        // All earlier posts have arrived.
        let before = posts(Self.interface)
        try await eventually("the receiver gets posts again") {
            try center.post("flood")
            return posts(Self.interface) > before
        }
    }

    @Test func aPostWithADescriptorOrToAReceiverThatIsGoneIsNotRelayed() async throws {
        let stranger = try DBusConnection.open(daemon.bus.bus)
        let message = try DBusMessage.signal(
            path: "/org/notifycenter",
            interface: Self.interface,
            member: "Posted",
            arguments: [.string("flood")]
        )
        var (iterator, descriptor) = (DBusMessageIter(), CInt(0))
        dbus_message_iter_init_append(message.pointer, &iterator)
        #expect(dbus_message_iter_append_basic(&iterator, CInt(UInt8(ascii: "h")), &descriptor) != 0)
        try stranger.send(message)
        try DarwinNotifyCenter(connection: stranger).post("a")
        try await receiver.line { $0 == "posted \(Self.darwin)" }
        #expect(posts(Self.interface) == 0)
        receiver.suspend()
        receiver.kill()
        receiver.waitUntilExit()
        try await flood()
        #expect(try await client.dropped() == 0)
    }
}
