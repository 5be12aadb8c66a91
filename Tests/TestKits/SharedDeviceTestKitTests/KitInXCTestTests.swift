import NotifyCenterTestKit
import SharedDeviceTestKit
import Testing
import XCTest

/// A test of XCTest that uses the kit.
final class KitInXCTestTests: XCTestCase {
    func testNotesAreGoneAfterSignOut() async throws {
        let device = try await TestDevice(apps: [ExampleApps.app("field-service")])
        try await device.signIn("ada")
        try await device.waitUntilRunning()
        try await device.app(ExampleApps.identifier("field-service")).work()
        let report = try await device.signOut(deadline: .seconds(60))
        try report.requireClean(of: "Ada <ada>")
        XCTAssertEqual(report.apps.map(\.isClean), [true])
        XCTAssertThrowsError(try report.requireClean(of: "never there"))
    }
}

@Suite("The kit in XCTest")
struct KitUnderXCTestTests {
    @Test("a test of XCTest uses the kit and passes")
    func passes() async throws {
        // The test program runs both kinds of tests.
        let arguments = ["SharedDeviceTestKitTests.KitInXCTestTests"]
        let run = try ChildProcess("/proc/self/exe", arguments)
        let status = await run.exitStatus()
        // This fails at the end of the process, once all its lines are read.
        _ = try? await run.line { _ in false }
        let output = (run.lines + [run.errorText]).joined(separator: "\n")
        #expect(status == 0, "\(output)")
        #expect(output.contains("Executed 1 test, with 0 failures"), "\(output)")
    }
}
