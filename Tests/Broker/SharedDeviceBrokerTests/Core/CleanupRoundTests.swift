import Basics
import DBus
import DeviceConfiguration
import Foundation
@_spi(Extensions) import SharedDevice
import Testing
import simulate

@testable import BrokerCore

@Suite("Cleanup rounds: receipts, waivers, reminders and polling")
struct CleanupRoundTests {
    private let device = VirtualDevice()
    private let desk: VirtualDevice.App
    private let a: VirtualDevice.App

    init() {
        desk = device.app("desk")
        a = device.app("a")
    }

    /// Has the desk sign Ada in, tells app "a" and the others of her and signs her out. Returns her session.
    private func adaWasHere(_ others: [VirtualDevice.App] = []) throws -> UInt64 {
        let session = try device.signIn("ada", by: desk)
        for app in [a] + others { _ = try device.session(for: app) }
        try device.signOut(by: desk)
        return session
    }

    private func round(_ session: UInt64? = nil, after: UInt64? = nil, patience: Duration = .zero) -> Request.Call {
        .round(session: session, after: after, awaitsEnd: false, patience: patience)
    }

    @Test("an administrator's waiver settles one session or all, with the reason in the log")
    func waive() throws {
        let (key, root) = (VirtualDevice.key("a"), device.administrator)
        let sessions = [try adaWasHere(), try adaWasHere()]
        func waive(_ session: UInt64?, user: UInt32? = nil) throws -> [UInt64] {
            let fields = try device.ask(root, .waive(app: key, user: user, session: session, reason: "was removed"))
            return fields["sessions"]?.elementsValue?.compactMap(\.unsignedValue) ?? []
        }
        #expect(try waive(sessions[0], user: 7).isEmpty, "another user owes nothing")
        #expect(try waive(sessions[0]) == [sessions[0]])
        try device.expectOwed([sessions[1]], by: a)
        #expect(try waive(nil) == [sessions[1]] && waive(nil) == [])
        try device.expectOwed([], by: a)
        let entries = device.disk.entries(.waived, app: key)
        #expect(entries.map(\.session) == sessions && entries.allSatisfy { $0.detail == "was removed" })
    }

    @Test("a report that a cleanup has begun is confirmed before it is committed")
    func begun() throws {
        let session = try adaWasHere()
        device.advance(by: .seconds(1))
        device.diskMode = .holds
        try device.report(.begun, of: session, by: a)
        #expect(device.held == nil)
        device.advance(by: .milliseconds(200))
        device.finishWriting()
        device.expectPart("a", of: session, .begun)
    }

    @Test("an app whose last process ends before its receipt owes everything again")
    func interrupted() throws {
        let session = try adaWasHere()
        try device.report(.begun, of: session, by: a)
        device.quit(a)
        #expect(try device.round(session, by: desk)?.apps.first?.progress == .owed)
        device.advance(by: .seconds(1))
        #expect(device.disk.entries(.interrupted).map(\.session) == [session])
        try device.expectOwed([session], by: device.app("a"))
    }

    @Test("owed cleanups survive a restart, and apps are told to ask")
    func restart() throws {
        let session = try adaWasHere()
        try device.report(.finished, of: session, by: desk)
        let announced = device.announcements
        device.restart()
        device.expectAnnouncements(announced + 1)
        try device.expectOwed([session], by: device.app("a"))
        try device.expectOwed([], by: device.app("desk"))
    }

    @Test("a running app that has not begun is reminded at growing intervals")
    func reminders() throws {
        let session = try adaWasHere()
        try device.report(.finished, of: session, by: desk)
        let announced = device.announcements
        device.advance(by: .seconds(2))
        device.expectAnnouncements(announced + 1)
        device.advance(by: .seconds(4))
        device.expectAnnouncements(announced + 2)
        device.advance(by: .seconds(3600))
        #expect((announced + 50...announced + 70).contains(device.announcements), "about once a minute")
        // The app may have been told by a response that does not start its cleanup, so reminders go on.
        var last = device.announcements
        _ = try device.owed(by: a)
        device.advance(by: .seconds(120))
        #expect(device.announcements > last)
        last = device.announcements
        try device.report(.begun, of: session, by: a)
        device.advance(by: .seconds(3600))
        device.expectAnnouncements(last)
    }

    @Test("the end of another process causes a new reminder and delays none")
    func reminderAfterAnothersEnd() throws {
        let other = device.app("a")
        let session = try adaWasHere([other])
        for app in [a, other] { _ = try device.session(for: app) }
        try device.report(.finished, of: session, by: desk)
        try device.report(.finished, of: session, by: a)
        let announced = device.announcements
        device.advance(by: .seconds(3))
        #expect(device.announcements > announced, "the other process has not reported")
        device.quit(other)
        try device.expectOwed([session], by: a)
        let last = device.announcements
        device.advance(by: .seconds(3))
        #expect(device.announcements > last)
        try device.report(.finished, of: session, by: a)
        #expect(try device.round(session, by: desk)?.isComplete == true)
        // The ends of processes do not put a reminder off.
        let others = (0..<4).map { _ in device.app("a") }
        let second = try adaWasHere(others)
        try device.report(.finished, of: second, by: desk)
        let count = device.announcements
        for other in others {
            try device.finish(a)
            device.quit(other)
            device.advance(by: .seconds(1.5))
        }
        #expect(device.announcements >= count + 2)
    }

    @Test("an uncounted receipt is refused, and the app learns of its debt when it asks")
    func refusedReceipt() throws {
        let (second, third, late) = (device.app("a"), device.app("a"), device.app("a"))
        let session = try adaWasHere([second, third])
        try device.report(.finished, of: session, by: desk)
        // This process was not given the account, but it also begins the cleanup.
        try device.expectOwed([session], by: late)
        device.quit(second)
        try device.expectOwed([session], by: third)
        try device.report(.finished, of: session, by: third)
        // A response that named a debt would make it clean up and report in an endless loop.
        let receipt = Request.Call.report(.finished, session: session, detail: nil)
        for _ in 0..<2 { #expect(try device.ask(late, receipt) == ["again": .boolean(true)]) }
        let entries = device.journal.filter { $0.detail?.contains("does not count") == true }
        #expect(entries.map(\.event) == [.interrupted] && entries.map(\.session) == [session])
        try device.expectOwed([session], by: late)
        for app in [late, a] { try device.finish(app) }
        #expect(try device.round(session, by: desk)?.isComplete == true)
    }

    // S8
    @Test("a receipt of another user's process of the app settles nothing")
    func receiptOfAnotherUser() throws {
        device.use(.app("org.example.app"))
        let (own, root) = (device.app("org.example.app", user: 65534), device.app("org.example.app", user: 0))
        let session = try device.signIn("ada", by: own)
        try device.signOut(by: own)
        try device.report(.finished, of: session, by: root)
        try device.expectOwed([session], by: own)
        #expect(try device.round(session, by: own)?.isComplete == false)
    }

    @Test("CO-1: a poll of a round returns at each change, or when its patience ends")
    func waitForRound() throws {
        let session = try adaWasHere()
        let first = try device.ask(desk, round())
        #expect(try CleanupReport(first["round"]).session == session)
        let revision = try #require(first["revision"]?.unsignedValue)
        let waiting = device.send(desk, round(session, after: revision, patience: .seconds(60)))
        device.expectUnanswered(waiting)
        try device.report(.begun, of: session, by: a)
        let second = try #require(device.answer(waiting)["revision"]?.unsignedValue)
        #expect(second > revision)
        let unchanged = device.send(desk, round(session, after: second, patience: .seconds(10)))
        device.advance(by: .seconds(9))
        device.expectUnanswered(unchanged)
        device.advance(by: .seconds(1))
        _ = try device.answer(unchanged)
        try device.finish(a, desk)
        let last = try device.ask(desk, round(session, after: second, patience: .seconds(60)))
        #expect(try CleanupReport(last["round"]).isComplete)
        #expect(try device.ask(desk, round(999)).isEmpty)
    }

    @Test("the log has each step once and in order, also after repeated receipts")
    func log() throws {
        let session = try adaWasHere()
        try device.finish(desk)
        try device.report(.begun, of: session, by: a)
        try device.report(.failed, of: session, by: a, detail: "disk")
        for _ in 0..<3 { try device.report(.finished, of: session, by: a) }
        try device.report(.finished, of: 999, by: a)
        try device.report(.finished, of: session, by: device.app("stranger"))
        device.advance(by: .seconds(1))
        let apps = try device.round(session, by: a)?.apps.map(\.identifier)
        #expect(apps == [VirtualDevice.key("a"), VirtualDevice.key("desk")])
        let expected: [AuditEntry.Event] = [
            .signedIn, .held, .announced, .held, .signedOut, .told, .finished, .begun, .failed, .finished, .completed,
        ]
        #expect(device.disk.log.filter { $0.session == session }.map(\.event) == expected)
        #expect(device.journal.count == device.disk.log.count)
    }

    @Test("an app that gets a manifest, or is no longer eligible, keeps its debt")
    func debtorOfOldRules() throws {
        let early = device.app("org.example.app")
        let earlier = try device.signIn("ada", by: early)
        try device.signOut(by: early)
        device.use(AppManifest(identifier: "org.example.app", identity: .init(executable: "/usr/bin/app")))
        try device.expectOwed([earlier], by: early)
        #expect(try device.round(earlier, by: early)?.apps.map(\.identifier) == ["org.example.app"])
        try device.report(.finished, of: earlier, by: early)
        #expect(device.disk.parts[earlier]?.keys.map(\.app) == ["org.example.app"])
        // An app that is no longer eligible sees no account.
        let session = try adaWasHere()
        device.use(AppManifest(identifier: "org.example.new", identity: .init(executable: "/usr/bin/new")))
        device.configure { $0.requiresEnrolment = true }
        let new = device.app(nil, executable: "/usr/bin/new")
        try device.signIn("grace", by: new)
        let answer = try device.session(for: a)
        #expect(answer.session.account == nil && answer.isWithheld && answer.owed.map(\.epoch) == [session])
        device.expectRefused(device.send(a, device.acquireToken(for: "grace")), code: .appNotEligible)
        try device.report(.finished, of: session, by: a)
        device.expectPart("a", of: session, .finished)
        device.expectRefused(device.send(a, .currentAccount), code: .appNotEligible)
    }
}
