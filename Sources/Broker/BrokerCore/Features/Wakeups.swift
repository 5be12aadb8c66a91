import Basics
import DeviceConfiguration
import SharedDevice

/// Has the apps that owe a cleanup clean up: reminds the apps that run, and starts the others by their bus names.
struct Wakeups: Sendable {
    /// The attempts to start an app, which continue while it owes a cleanup, at intervals that grow to a minute.
    private struct Start: Sendable {
        /// When the next attempt is due; `nil` while one is in progress.
        var next: Duration?
        var pauses = Backoff(first: .milliseconds(500), longest: Facts.longestPause)
        /// Whether the next attempt waits for the end of a claim.
        var isPostponed = false
        /// Why the last attempt failed, logged once in a row.
        var problem: String?
    }

    private var reminder: (at: Duration, pause: Duration, isForAll: Bool)?
    private var starts: [String: Start] = [:]

    static let firstReminder = Duration.seconds(2)

    var next: Duration? {
        let start = starts.values.lazy.compactMap(\.next).min()
        return start.map { min($0, reminder?.at ?? $0) } ?? reminder?.at
    }

    /// Why apps could not be started.
    var problems: [String: String] { starts.compactMapValues(\.problem) }

    mutating func passTime(_ facts: Facts) -> [Decision] {
        var decisions = remindIfDue(facts)
        guard !starts.isEmpty else { return decisions }
        let due = starts.filter { $0.value.next.map { $0 <= facts.now.uptime } ?? false }
        guard !due.isEmpty else { return decisions }
        let debtors = Set(facts.ledger.debtors.map(\.app))
        for app in due.keys.sorted() {
            if debtors.contains(app) { decisions += start(app, facts) } else { starts[app] = nil }
        }
        return decisions
    }

    // MARK: Apps that run

    /// Schedules repeated announcements, at growing intervals, while a running app does not clean up: it may have lost
    /// a signal.
    ///
    /// - Parameter isForAll: Whether to send the first reminder even if no recipient is known: a process that has
    ///   reported is no longer listed, and after a change of rules a process is identified only when it calls.
    mutating func remind(isForAll: Bool = false, _ facts: Facts) {
        // The reminder is never postponed: otherwise an app could postpone the reminder for all other apps.
        let due = facts.now.uptime + Self.firstReminder
        let at = reminder.map { min($0.at, due) } ?? due
        reminder = (at, Self.firstReminder, isForAll || reminder?.isForAll == true)
    }

    mutating func remindOfDebt(_ facts: Facts) { if reminder == nil { remind(facts) } }

    private mutating func remindIfDue(_ facts: Facts) -> [Decision] {
        guard let due = reminder, due.at <= facts.now.uptime else { return [] }
        // A process loses its identity when the rules change, until it calls. Its debt still lists its connection.
        let present = facts.ledger.participants { $1.connections.contains { facts.connected[$0] != nil } }
        guard facts.ledger.idle.contains(where: { due.isForAll || facts.isRunning($0) || present.contains($0) }) else {
            reminder = nil
            return []
        }
        let pause = min(due.pause * 2, Facts.longestPause)
        reminder = (facts.now.uptime + pause, pause, false)
        return [.perform(.announce(modeChanged: false))]
    }

    // MARK: Apps that do not run

    mutating func startDebtors(_ facts: Facts) -> [Decision] {
        Set(facts.ledger.debtors.map(\.app)).sorted().flatMap { startDebtor($0, facts) }
    }

    /// An app without a bus name has to start by itself.
    mutating func startDebtor(_ app: String, _ facts: Facts) -> [Decision] {
        guard starts[app] == nil, busName(of: app, facts) != nil else { return [] }
        starts[app] = Start()
        return start(app, facts)
    }

    private mutating func start(_ app: String, _ facts: Facts) -> [Decision] {
        guard let name = busName(of: app, facts) else {
            starts[app] = nil
            return []
        }
        // The app must not start while its data is being deleted.
        let isClaimed = facts.ledger.claims.keys.contains { $0.app == app }
        starts[app]?.next = isClaimed ? facts.now.uptime + Facts.longestPause : nil
        starts[app]?.isPostponed = isClaimed
        return isClaimed ? [] : [.perform(.startService(app: app, busName: name))]
    }

    mutating func claimEnded(of app: String, _ facts: Facts) {
        if starts[app]?.isPostponed == true { starts[app]?.next = facts.now.uptime }
    }

    mutating func started(_ app: String, _ outcome: ServiceStart, _ facts: Facts) -> [Decision] {
        guard var start = starts[app] else { return [] }
        let name = busName(of: app, facts) ?? "?"
        var detail: String?
        switch outcome {
        case .started:
            start.problem = nil
            detail = "started as \(name)"
        case .running: start.problem = nil
        case .failed(let reason):
            let problem = "could not be started as \(name): \(reason.printable(300))"
            if problem != start.problem { detail = problem }
            start.problem = problem
        case .noBus: break
        }
        start.next = facts.now.uptime + start.pauses.next()
        starts[app] = start
        return detail.map { [.log(.woken, app: app, detail: $0)] } ?? []
    }

    private func busName(of app: String, _ facts: Facts) -> String? { facts.eligibility.manifest(of: app)?.busName }
}
