import NotifyCenterTestKit
import Testing

@testable import DBus

@Suite("A program that closes the library's descriptors")
struct ClosedDescriptorTests {
    @Test("an observer reconnects and a post arrives; the program's files stay untouched")
    func closedDescriptors() async throws {
        let bus = try PrivateBus()
        let observer = try ChildProcess(ChildProcess.built("bus-probe"), [bus.address, "close-descriptors", "1"])
        // This must happen without another call of the program and without a message from the bus.
        try await observer.line { $0 == "restored" }
        try observer.write("post")
        for line in ["heard", "untouched"] { try await observer.line { $0 == line } }
        #expect(await observer.exitStatus() == 0)
        let counter = try Counter(try DBusConnection.open(bus.bus))
        let poster = try ChildProcess(ChildProcess.built("bus-probe"), [bus.address, "close-descriptors", "0"])
        try await poster.line { $0 == "untouched" }
        #expect(await poster.exitStatus() == 0)
        try await eventually("the post arrives") { counter.arrived == 1 }
    }
}
