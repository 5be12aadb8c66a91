import NotifyCenterTestKit
import Testing

@testable import DBus

@Suite("A program that closes the library's descriptors")
struct ClosedDescriptorTests {
    @Test("an observer reconnects, and the program's own files stay untouched")
    func observing() async throws {
        let bus = try PrivateBus()
        let probe = try ChildProcess(ChildProcess.built("bus-probe"), [bus.address, "close-descriptors", "1"])
        // This must happen without another call of the program and without a message from the bus.
        try await probe.line { $0 == "restored" }
        try probe.write("post")
        try await probe.line { $0 == "heard" }
        try await probe.line { $0 == "untouched" }
        #expect(await probe.exitStatus() == 0)
    }

    @Test("a post is sent over a new connection, and the program's own files stay untouched")
    func posting() async throws {
        let bus = try PrivateBus()
        let counter = try Counter(try DBusConnection.open(bus.bus))
        let probe = try ChildProcess(ChildProcess.built("bus-probe"), [bus.address, "close-descriptors", "0"])
        try await probe.line { $0 == "untouched" }
        #expect(await probe.exitStatus() == 0)
        try await eventually("the post arrives") { counter.arrived == 1 }
    }
}
