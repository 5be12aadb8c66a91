import NotifyCenterTestKit
import SharedDeviceTestKit
import Testing
import XCTest

/// An XCTest test that uses the kit.
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
    @Test("an XCTest test uses the kit and passes")
    func passes() async throws {
        // The test program runs both kinds of tests.
        let arguments = ["SharedDeviceTests.KitInXCTestTests"]
        let run = try ChildProcess("/proc/self/exe", arguments)
        let status = await run.exitStatus()
        // This fails after the process has ended and all its lines have been read.
        _ = try? await run.line { _ in false }
        let output = (run.lines + [run.errorText]).joined(separator: "\n")
        #expect(status == 0, "\(output)")
        #expect(output.contains("Executed 1 test, with 0 failures"), "\(output)")
    }
}
