import Basics
import DBus
import Foundation
import NotifyCenterTestKit
import SharedDevice
import Synchronization
import Testing

@Suite("Cleanup rounds across real processes", .serialized, .timeLimit(.minutes(10)))
struct CleanupRoundTests {
    @Test("a sign-out reports each app's steps until all are clean or the deadline comes")
    func waiting() async throws {
        let (device, control, app) = try await deviceWithListener(showing: "ada")
        let apps = [app, try Listener("slow", on: device)]
        try await apps[1].start(showing: "ada")
        let steps = Locked<[CleanupReport]>([])
        func signOut(deadline: Duration) async throws -> CleanupReport {
            let account = try #require(try await control.application.getCurrentAccount().current)
            let parameters = SignoutParameters(cleanupDeadline: deadline) { report in
                steps.withLock { $0.append(report) }
            }
            let result = try await control.application.signout(with: account, signoutParameters: parameters)
            let report = try #require(result.cleanup)
            #expect(report.session == result.session)
            return report
        }
        let report = try await signOut(deadline: .seconds(60))
        #expect(report.isComplete)
        let names = report.apps.map { $0.identifier.prefix { $0 != " " } }
        #expect(names == ["org.example.control", "org.example.listener", "org.example.slow"])
        #expect(report.apps.allSatisfy { $0.progress == .finished && $0.isRunning })
        for app in report.apps where app.identifier != "org.example.control" {
            let times = [try #require(app.toldAfter), try #require(app.begunAfter), try #require(app.finishedAfter)]
            #expect(times == times.sorted() && app.detail?.isEmpty == false, "\(app)")
        }
        let seen = steps.withLock { $0 }
        #expect(seen.last == report && seen.allSatisfy { $0.session == report.session })
        // A settled app is never pending again in a later step.
        for (earlier, later) in zip(seen, seen.dropFirst()) {
            let settled = Set(earlier.apps.filter { $0.progress.isSettled }.map(\.identifier))
            #expect(settled.isDisjoint(with: later.owing.map(\.identifier)))
        }
        for app in apps { #expect(app.files.isEmpty, "the app has reported its data deleted, and still has files") }
        // The broker reports the end of the round before the log entry is on disk.
        try await eventually("the log has it") {
            try await device.command("log", "--event", "completed").lines.count == 1
        }
        // After the deadline the report names the pending apps, and the sign-out stands.
        let mark = app.mark
        try await control.signIn("grace")
        try await app.wait("open grace", after: mark)
        app.suspend()
        let early = try await signOut(deadline: .milliseconds(500))
        #expect(!early.isComplete && app.part(in: early)?.progress == .owed)
        // The other processes clean up at once, but on a busy machine the deadline may come first.
        try await control.wait(forAllBut: app, in: early.session)
        #expect(try await control.application.getCurrentAccount().current == nil)
        app.resume()
        let later = try await control.application.waitForCleanup(ofSession: early.session, within: .seconds(120))
        #expect(later?.isComplete == true)
    }

    @Test("receipts arrive although the broker was killed after the sign-out")
    func brokerKilledBeforeReceipts() async throws {
        let device = try await DeviceOnPrivateBus()
        let control = device.application("control")
        try await control.signIn("ada")
        var changes = control.accountChanges.makeAsyncIterator()
        let first = await changes.next(isolation: nil)
        #expect(first?.current?.username == "ada")
        try await control.signOutCurrent()
        var over = await changes.next(isolation: nil)
        while over?.previousAccounts.isEmpty == true { over = await changes.next(isolation: nil) }
        let change = try #require(over)
        device.killBroker()
        // The receipt is on the app's disk: the broker is not running.
        try await control.cleanupDone(change, detail: "while you were away")
        try await device.startBroker()
        try await eventually("the broker has the receipt") {
            _ = try? await control.getCurrentAccount()
            let report = try? await control.cleanupReport()
            return report?.isComplete == true && report?.apps.first?.detail == "while you were away"
        }
        let again = device.application("control")
        #expect(try await again.getCurrentAccount().previous == nil)
    }
}
