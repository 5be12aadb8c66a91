import NotifyCenter
import NotifyCenterTestKit
import Testing

@Suite struct PortedProgramTests {
    @Test func aSwiftProgramThatIsWrittenForApplesNotifyBuildsAndHearsPosts() async throws {
        let bus = try PrivateBus()
        let notifyd = try await startNotifyd(on: bus)
        defer { notifyd.kill() }
        let program = try ChildProcess(ChildProcess.built("ported-notify"), ["menu"], environment: bus.environment)
        try await program.line { $0 == "ready true" }
        let center = DarwinNotifyCenter(bus: bus.bus)
        try center.post("menu")
        try await program.line { $0 == "change 1 state 42" }
        try center.post("menu")
        try await program.line { $0 == "change 2 state 42" }
        #expect(await program.exitStatus() == 0)
        #expect(program.lines.contains("handler"))
    }
}
