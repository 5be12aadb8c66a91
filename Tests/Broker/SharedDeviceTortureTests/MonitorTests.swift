import BrokerCore
import SharedDevice
import Testing

@Suite("Violations that the monitor reports")
struct MonitorTests {
    private typealias Progress = CleanupReport.Progress

    private static let app = Participant(app: "org.example.app0", user: 7)
    private let ada = Marker(user: "ada", epoch: 12)
    private let grace = Marker(user: "grace", epoch: 14)

    /// Ada's session 12 is over or open, and the app's debt has this progress.
    private func truth(
        epoch: UInt64,
        adaIsOpen: Bool = false,
        _ progress: Progress?,
        graceIsOpen: Bool = false
    ) -> Truth {
        var truth = Truth(epoch: epoch)
        truth.sessions[12] = Truth.Session(isOpen: adaIsOpen, user: "ada", apps: [Self.app: progress])
        if graceIsOpen {
            truth.sessions[14] = Truth.Session(isOpen: true, user: "grace", apps: [Self.app: Progress?.none])
        }
        return truth
    }

    private func violation(
        strict: Bool = false,
        base: UInt64 = 10,
        before: Truth,
        _ sight: Sight,
        after: Truth? = nil
    ) -> String? {
        do throws(Monitor.Violation) {
            try Monitor(isStrict: strict, base: base).check(before: before, [sight], after: after ?? before)
            return nil
        } catch { return error.description }
    }

    private func files(_ markers: Marker...) -> Sight { Sight(app: Self.app, files: Set(markers)) }

    @Test("data is no violation in an open session or while the cleanup is owed, only then")
    func rightful() throws {
        #expect(violation(before: truth(epoch: 12, adaIsOpen: true, nil), files(ada)) == nil)
        #expect(violation(before: truth(epoch: 13, .begun), files(ada)) == nil)
        // The receipt arrived during the inspection.
        #expect(violation(before: truth(epoch: 13, .begun), files(ada), after: truth(epoch: 13, .finished)) == nil)
        #expect(violation(strict: true, before: truth(epoch: 14, .finished, graceIsOpen: true), files(grace)) == nil)
        #expect(violation(before: truth(epoch: 14, .owed, graceIsOpen: true), files(ada)) == nil)
        let monitor = Monitor(isStrict: false, base: 10)
        try monitor.checkQuiet([files()])
        #expect(throws: Monitor.Violation.self) { try monitor.checkQuiet([Sight(app: Self.app, screen: grace)]) }
    }

    @Test("data or a screen without a session or debt is reported, and a falling epoch")
    func wrongful() {
        let over = truth(epoch: 13, .finished)
        let graceIsOpen = truth(epoch: 14, .owed, graceIsOpen: true)
        let otherUser = Sight(app: Participant(app: Self.app.app, user: 8), files: [ada])
        let cases: [(found: String?, reason: String)] = [
            (violation(before: over, files(ada)), "names no debt"),
            (violation(before: over, Sight(app: Self.app, screen: ada)), "the screen"),
            // Only a strict policy forbids this.
            (violation(strict: true, before: graceIsOpen, files(ada)), "is open"),
            (violation(before: Truth(epoch: 12), files(ada)), "does not know"),
            (violation(base: 12, before: Truth(epoch: 12), files(ada)), "before this schedule"),
            // A debt excuses only its own user.
            (violation(before: truth(epoch: 13, .begun), otherUser), "of user 8 has files"),
            (violation(before: Truth(epoch: 13), files(), after: Truth(epoch: 12)), "went back from 13 to 12"),
        ]
        for (found, reason) in cases { #expect(found?.contains(reason) == true, "\(reason): \(found ?? "none")") }
    }

    @Test("an app that shows or is told an earlier session after a later one is a violation")
    func journal() throws {
        let monitor = Monitor(isStrict: false, base: 10)
        try monitor.checkJournal(["change 12 ada, of ", "show 12 ada", "change 13 -, of ada", "start"], of: Self.app)
        for lines in [
            ["show 14 grace", "show 12 ada"], ["change 13 -, of ada", "start", "change 12 ada, of "],
            ["change 13 -, of ada", "show 12 ada"],
        ] { #expect(throws: Monitor.Violation.self) { try monitor.checkJournal(lines, of: Self.app) } }
    }

    @Test("a token for a signed-out user or from an earlier session is a violation")
    func tokens() throws {
        let (ada, nobody) = (truth(epoch: 12, adaIsOpen: true, nil), truth(epoch: 13, .finished))
        var monitor = TokenMonitor()
        try monitor.granted("t", of: "ada", before: ada, after: ada)
        // The request was in flight when the session ended.
        try monitor.granted("t", of: "ada", before: ada, after: nobody)
        #expect(throws: Monitor.Violation.self) { try monitor.granted("u", of: "ada", before: nobody, after: nobody) }
        var later = Truth(epoch: 16)
        later.sessions[16] = Truth.Session(isOpen: true, user: "ada")
        #expect(throws: Monitor.Violation.self) { try monitor.granted("t", of: "ada", before: later, after: later) }
    }
}
