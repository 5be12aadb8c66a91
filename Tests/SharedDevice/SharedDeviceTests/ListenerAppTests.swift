import Foundation
import Glibc
@_spi(Extensions) import NotifyCenterTestKit
import SharedDeviceTestKit
import Testing

@Suite("Global sign-out across real processes", .serialized)
struct ListenerAppTests {
    @Test("the example apps clean up, with and without data, and their times are in order")
    func signOut() async throws {
        let device = try await TestDevice(apps: ExampleApps.names.map(ExampleApps.app), users: ["ada"])
        try await device.signIn("ada")
        try await device.waitUntilRunning()
        for app in device.apps.dropLast() { try await app.work() }
        let report = try await device.signOut(deadline: .seconds(60))
        try report.requireClean(of: "Ada <ada>")
        #expect(report.apps.map(\.isClean) == [true, true, true] && report.user == "ada")
        for app in report.apps {
            let (heard, cleaned) = (try #require(app.heardAfter), try #require(app.cleanedAfter))
            #expect(heard <= cleaned && app.seenCleanAfter != nil, "\(app)")
        }
    }

    @Test("the demonstration ends with a short verdict, and its JSON explains each row", .needsActivation)
    func demo() async throws {
        let demo = try ChildProcess(ChildProcess.built("demo"))
        // This path is too long for Chromium, which is left out. Its row is in the other output.
        let directory = try TemporaryDirectory("demo-json")
        let temporary = try directory.folder("temporary")
        let json = try ChildProcess(ChildProcess.built("demo"), ["--json"], environment: ["TMPDIR": temporary])
        #expect(await demo.exitStatus() == 0, "\(demo.errorText)")
        #expect(demo.lines.count <= 12 && demo.lines.last == "proved: every app cleaned up", "\(demo.lines)")
        // Chromium has a row in the first sign-out, or a line gives the reason why it was left out.
        let leavesOut = demo.lines.contains { $0.hasPrefix("left out: Chromium, because ") }
        #expect(demo.lines.contains { $0.hasPrefix("  chromium ") } != leavesOut, "\(demo.lines)")
        #expect(!demo.lines.joined().contains("\u{1B}") && !demo.errorText.contains("\u{1B}"), "no terminal reads it")
        #expect(await json.exitStatus() == 0, "\(json.errorText)")
        let text = json.lines.joined()
        #expect(text.contains("is refused, as it should be: the last person's data is not yet gone from field-service"))
        #expect(text.contains("a reminder, because an app has not cleaned up yet") && !text.contains("FAILED"))
    }

    /// Runs the demonstration, and interrupts it when it reports `moment`.
    private func interrupt(_ moment: String, in temporary: String) async throws -> (demo: ChildProcess, status: Int32) {
        struct Ended: Error { let text: String }
        let demo = try ChildProcess(ChildProcess.built("demo"), environment: ["TMPDIR": temporary])
        // On a separate thread, because other tests can occupy Swift's threads for longer than the moment lasts.
        try await onThread {
            while !demo.errorText.contains(moment) {
                guard demo.isRunning else {
                    demo.waitUntilExit()
                    guard demo.errorText.contains(moment) else { throw Ended(text: demo.errorText) }
                    return
                }
                usleep(500)
            }
            demo.send(SIGINT)
        }
        return (demo, await demo.exitStatus())
    }

    @Test(
        "an interrupted demonstration says so and leaves no folder and no process",
        .needsActivation,
        arguments: ["two users", "Ada signs out"]
    )
    func interruptedDemo(_ moment: String) async throws {
        let directory = try TemporaryDirectory("demo-signal")
        let temporary = try directory.folder()
        var (demo, status) = try await interrupt(moment, in: temporary)
        // On a busy machine it may have ended before the signal arrived.
        for _ in 0..<4 where status == 0 || !demo.lines.isEmpty {
            (demo, status) = try await interrupt(moment, in: temporary)
        }
        #expect(status == 130)
        #expect(demo.errorText.hasSuffix("demo: interrupted") && demo.lines.isEmpty, "\(demo.errorText)")
        #expect(try FileManager.default.contentsOfDirectory(atPath: temporary) == [])
        // Every process of the demonstration has the folder on its command line.
        #expect(processes(with: temporary) == [])
    }
}
