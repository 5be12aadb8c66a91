import CDBus
import Foundation
import NotifyCenter
import NotifyCenterTestKit
import Testing

@testable import DBus

@Suite struct RelayTests {
    private let daemon: Daemon
    private let center: DistributedNotifyCenter
    private static let interface = "\(RelayedCenter.distributed.rawValue).flood"
    private static let darwin = "\(RelayedCenter.darwin.rawValue).a"

    init() async throws {
        daemon = try await Daemon()
        center = DistributedNotifyCenter(bus: daemon.bus.bus)
    }

    private func relayed() async throws -> ChildProcess {
        let process = try ChildProcess(
            ChildProcess.built("notify-probe"),
            ["notifyd"],
            environment: daemon.bus.environment
        )
        try await process.line { $0.hasPrefix("ready") }
        try process.write("call Relay as:\(Self.interface),\(Self.darwin)")
        try await process.line { $0.hasPrefix("ok") }
        return process
    }

    private func dropped(_ client: Client) async throws -> Int {
        let status = try await client.status()
        return status.firstMatch(of: /dropped (\d+)/).flatMap { Int($0.1) } ?? 0
    }

    @Test func aReceiverThatDoesNotReadGetsNoMoreAndOthersAreServed() async throws {
        let (receiver, client) = (try await relayed(), try Client(daemon.bus))
        receiver.suspend()
        let data = PropertyListValue.data(Array(repeating: 7, count: 500_000))
        // At most 16 MiB may be unread.
        for _ in 0..<60 {
            try center.post("flood", userInfo: ["data": data])
            try await center.flush()
            _ = try await client.state("served")
        }
        #expect(try await dropped(client) > 0)
        // Each name of the Darwin center is heard once more.
        let darwin = DarwinNotifyCenter(bus: daemon.bus.bus)
        for _ in 0..<3 { try darwin.post("a") }
        try await darwin.flush()
        try await client.set("served", 1)
        #expect(try await client.state("served") == 1)
        receiver.resume()
        try await receiver.line { $0 == "posted \(Self.darwin)" }
        #expect(receiver.lines.count { $0 == "posted \(Self.darwin)" } == 1)
        // All earlier posts have arrived.
        func floods() -> Int { receiver.lines.count { $0 == "posted \(Self.interface)" } }
        let before = floods()
        try await eventually("it is sent posts again") {
            try center.post("flood")
            return floods() > before
        }
    }

    @Test func theEndOfAReceiverEndsItsRelay() async throws {
        let (receiver, client) = (try await relayed(), try Client(daemon.bus))
        receiver.suspend()
        receiver.kill()
        receiver.waitUntilExit()
        let data = PropertyListValue.data(Array(repeating: 7, count: 500_000))
        for _ in 0..<60 { try center.post("flood", userInfo: ["data": data]) }
        try await center.flush()
        #expect(try await dropped(client) == 0)
    }

    @Test func aPostWithADescriptorIsNotRelayed() async throws {
        let receiver = try await relayed()
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
        try await receiver.line { $0.hasPrefix("posted ") }
        #expect(receiver.lines.filter { $0.hasPrefix("posted ") } == ["posted \(Self.darwin)"])
    }
}
