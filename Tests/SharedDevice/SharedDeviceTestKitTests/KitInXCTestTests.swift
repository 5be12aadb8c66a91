import NotifyCenterTestKit
import SharedDeviceTestKit
import Testing
import XCTest

/// An XCTest test that uses the kit.
final class KitInXCTestTests: XCTestCase {
    func testNotesAreGoneAfterSignOut() async throws {
        let (device, _) = try await ExampleApps.deviceAtWork("field-service")
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
        let run = try ChildProcess("/proc/self/exe", ["SharedDeviceTests.KitInXCTestTests"])
        let status = await run.exitStatus()
        let output = (run.lines + [run.errorText]).joined(separator: "\n")
        #expect(status == 0 && output.contains("Executed 1 test, with 0 failures"), "\(output)")
    }
}
