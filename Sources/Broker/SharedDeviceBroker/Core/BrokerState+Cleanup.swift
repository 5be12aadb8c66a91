import Basics
import DBus
import DeviceConfiguration
import FoundationEssentials
@_spi(Extensions) import SharedDevice

/// The cleanup rounds after each session (architecture, D10), and the automatic end of a session.
extension BrokerState {
    // MARK: Reports

    /// Handles an app's report. The response waits for the commit, except for the report that a cleanup has begun.
    ///
    /// A report on a cleanup that the app does not owe changes nothing, because a report may arrive twice. The response
    /// says if a receipt does not count because its sender began under another mark.
    mutating func report(
        _ request: Request,
        _ progress: CleanupReport.Progress,
        _ session: UInt64,
        _ participant: Participant,
        _ mark: UInt64,
        _ detail: String?
    ) -> BrokerProtocol.Fields? {
        let before = ledger.parts[session]?[participant]
        let effect = facts.ledger.report(
            progress,
            of: session,
            by: participant,
            on: request.connection,
            mark: mark,
            detail: detail,
            at: now
        )
        switch effect {
        case .none: break
        case .detailed: needsDisk(within: Facts.Disk.lazyWrite)
        case .refused where ledger.parts[session]?[participant] != before:
            let words = "the cleanup does not count: another connection of the app has closed without a report"
            enterRepeatable(.interrupted, "reports", session, participant, detail: words)
            needsDisk(within: .zero)
            if reminder == nil { remind() }
            touch()
        case .refused: break
        case .recorded, .completed:
            noteSettled(progress, session, participant, detail: detail)
            needsDisk(within: progress == .begun ? Facts.Disk.lazyWrite : .zero)
            if reminder == nil, ledger.isIdle(participant) { remind() }
            touch()
        }
        guard progress != .begun else { return [:] }
        wait(request, for: .stored(effect == .refused ? ["again": .boolean(true)] : [:], participant))
        return nil
    }

    /// Waives an app's cleanup: an administrator declares it done.
    ///
    /// - Parameters:
    ///   - user: The user that runs the app; `nil` means every user.
    ///   - session: The session; `nil` means every session whose cleanup the app owes.
    mutating func waive(
        _ request: Request,
        _ app: String,
        _ user: UInt32?,
        _ session: UInt64?,
        _ reason: String
    ) -> BrokerProtocol.Fields? {
        var waived: Set<UInt64> = []
        for participant in ledger.debtors.sorted()
        where participant.app == app && (user ?? participant.user) == participant.user {
            for number in ledger.owed(by: participant).map(\.epoch) where session == nil || session == number {
                _ = facts.ledger.report(.waived, of: number, by: participant, on: nil, detail: reason, at: now)
                noteSettled(.waived, number, participant, detail: reason)
                waived.insert(number)
            }
        }
        needsDisk(within: .zero)
        touch()
        let fields: BrokerProtocol.Fields = ["sessions": .array(waived.sorted().map { .uint64($0) }, of: "t")]
        wait(request, for: .stored(fields, nil))
        return nil
    }

    /// Logs an app's progress, and the completion of the round.
    mutating func noteSettled(
        _ progress: CleanupReport.Progress,
        _ session: UInt64,
        _ participant: Participant,
        detail: String?
    ) {
        guard let event = AuditEntry.Event(rawValue: progress.rawValue) else { return }
        // A cleanup is settled only once.
        if ledger.parts[session]?[participant]?.progress?.isSettled == true {
            enterLog(event, session: session, participant: participant, detail: detail)
        } else {
            enterRepeatable(event, "reports", session, participant, detail: detail)
        }
        noteCompletion(session)
    }

    /// How many repeatable log entries one app may cause in one session. A round may stay open for months, and its
    /// entries are kept until then.
    static let entriesOfPart = 200

    /// Logs an event that an app can repeat, unless the app has reached a limit.
    mutating func enterRepeatable(
        _ event: AuditEntry.Event,
        _ kind: String,
        _ session: UInt64,
        _ participant: Participant,
        detail: String? = nil
    ) {
        guard reports.admits(participant.user, participant.app, kind, at: now.uptime) else { return }
        let entered = (repeatedEntries[session]?[participant] ?? 0) + 1
        guard entered <= Self.entriesOfPart else { return }
        repeatedEntries[session, default: [:]][participant] = entered
        let words = "the last entry of this app in this session that it can repeat"
        let detail = entered < Self.entriesOfPart ? detail : [detail, words].compactMap { $0 }.joined(separator: "; ")
        enterLog(event, session: session, participant: participant, detail: detail)
    }

    mutating func noteCompletion(_ session: UInt64, detail: String? = nil) {
        guard ledger.sessions[session]?.outcome == .complete else { return }
        enterLog(.completed, session: session, detail: detail)
        repeatedEntries[session] = nil
        unsaved.insert(.erasure)
    }

    mutating func tell(_ participant: Participant) {
        // The note that an app was told is only for people: the ledger already contains the debt.
        for number in facts.ledger.tell(participant, at: now) {
            enterRepeatable(.told, "told", number, participant)
            needsDisk(within: Facts.Disk.lazyWrite)
            touch()
        }
    }

    /// Handles the end of the app's last process. The app owes again the cleanups that it was told of or had begun, and
    /// the bus is asked to start it if it owes any.
    mutating func appEnded(_ participant: Participant) {
        for number in facts.ledger.processEnded(participant) {
            enterRepeatable(.interrupted, "interrupted", number, participant)
            needsDisk(within: Facts.Disk.lazyWrite)
        }
        touch()
        if ledger.owes(participant) { wake(participant.app) }
    }

    // MARK: Requests

    /// Returns a round with its revision, which grows with each change. The request can wait for a change or for the
    /// end of the round.
    mutating func round(_ request: Request) -> BrokerProtocol.Fields? {
        guard case .round(let session, let known, let awaitsEnd, let patience, _) = request.call else { return [:] }
        guard let number = session ?? ledger.rounds.last, let outcome = ledger.sessions[number]?.outcome else {
            return [:]
        }
        let deadline = request.askedAt + patience
        if outcome == .complete || (revision != known && !awaitsEnd) || deadline <= now.uptime {
            return roundFields(of: number)
        }
        wait(request, until: deadline, for: .round)
        return nil
    }

    func roundFields(of session: UInt64) -> BrokerProtocol.Fields {
        let running = Set(connected.values.flatMap(\.apps.values))
        guard let report = ledger.report(of: session, isRunning: running.contains) else { return [:] }
        return ["round": report.fields, "revision": .uint64(revision)]
    }

    // MARK: Reminding and starting apps

    static let firstReminder = Duration.seconds(2)

    /// Schedules repeated announcements while a running app does not clean up, at growing intervals. They keep a round
    /// from staying open because an app has lost a signal, or has asked and then not cleaned up.
    ///
    /// - Parameter isForAll: Whether to send the first reminder even if no recipient is known. A recipient may exist: a
    ///   process that has reported is no longer listed with its debt, and after a change of manifests or policy a
    ///   process is identified only when it calls.
    mutating func remind(isForAll: Bool = false) {
        // The reminder is never postponed: otherwise an app could postpone the reminder for all other apps.
        let due = now.uptime + Self.firstReminder
        let at = reminder.map { min($0.at, due) } ?? due
        reminder = (at, Self.firstReminder, isForAll || reminder?.isForAll == true)
    }

    mutating func remindIfDue() {
        guard let due = reminder, due.at <= now.uptime else { return }
        // A process may have lost its identity briefly, while manifests and policy changed. It is identified again only
        // when it calls. Until then its debt still lists its connection.
        let present = ledger.participants { $1.connections.contains { connected[$0] != nil } }
        guard ledger.idle.contains(where: { due.isForAll || facts.isRunning($0) || present.contains($0) }) else {
            reminder = nil
            return
        }
        effects.append(.announce(modeChanged: false))
        let pause = min(due.pause * 2, Facts.longestPause)
        reminder = (now.uptime + pause, pause, false)
    }

    /// The attempts to start an app that owes a cleanup. They continue while the debt exists, at intervals that grow to
    /// a minute. An app that crashes at each start does not keep the device busy, and an app that is repaired gets
    /// started.
    struct Wake: Sendable {
        /// When the next attempt is due; `nil` while one is in progress.
        var next: Duration?
        var pause = Duration.milliseconds(500)
        /// Whether the next attempt waits for the end of a claim.
        var isPostponed = false
        /// Why the last attempt failed. The same reason is logged only once in a row.
        var problem: String?
    }

    mutating func wakeDebtors() { for app in Set(ledger.debtors.map(\.app)).sorted() { wake(app) } }

    /// Starts the app through its bus name. An app without a bus name has to start by itself.
    private mutating func wake(_ app: String) {
        guard wakes[app] == nil, busName(of: app) != nil else { return }
        wakes[app] = Wake()
        startService(app)
    }

    mutating func startService(_ app: String) {
        guard ledger.debtors.contains(where: { $0.app == app }), let name = busName(of: app) else {
            wakes[app] = nil
            return
        }
        // The app must not start while its data is being deleted.
        guard !ledger.claims.keys.contains(where: { $0.app == app }) else {
            wakes[app]?.next = facts.now.uptime + Facts.longestPause
            wakes[app]?.isPostponed = true
            return
        }
        wakes[app]?.next = nil
        wakes[app]?.isPostponed = false
        effects.append(.startService(app: app, busName: name))
    }

    mutating func serviceStarted(_ app: String, _ outcome: ServiceStart) {
        guard var wake = wakes[app] else { return }
        let name = busName(of: app) ?? "?"
        switch outcome {
        case .started:
            wake.problem = nil
            enterLog(.woken, app: app, detail: "started as \(name)")
        case .running: wake.problem = nil
        case .failed(let reason):
            let detail = "could not be started as \(name): \(reason.printable(300))"
            if detail != wake.problem { enterLog(.woken, app: app, detail: detail) }
            wake.problem = detail
        case .noBus: break
        }
        wake.next = now.uptime + wake.pause
        wake.pause = min(wake.pause * 2, Facts.longestPause)
        wakes[app] = wake
    }

    private func busName(of app: String) -> String? { manifests.first { $0.identifier == app }?.busName }

    // MARK: The automatic end of a session

    mutating func noteActivity() {
        guard schedule != nil else { return }
        schedule?.schedule.noteActivity(at: facts.now)
        // Stored at most once a second, which is enough for timeouts of minutes.
        if abs(now.wall.timeIntervalSince(lastActivity ?? .distantPast)) >= 1 {
            lastActivity = now.wall
            effects.append(.keepActivity(now.wall))
        }
        lookAtSchedule()
    }

    mutating func lookAtSchedule() {
        guard device.account != nil, let session = ledger.sessions[device.epoch] else {
            schedule = nil
            return
        }
        var next: SignOutSchedule
        if let schedule, schedule.epoch == device.epoch {
            next = schedule.schedule
        } else {
            // A session of an earlier run continues from the last activity of that run. In a new session, the sign-in
            // itself is the last activity.
            next = SignOutSchedule(
                settings: policy.schedule,
                localTime: .device,
                startedAt: session.startedAt,
                lastActivity: lastActivity ?? now.wall
            )
        }
        let decision = next.look(at: now)
        schedule = (device.epoch, next, nil)
        switch decision {
        case .look(nil): break
        case .look(let date?):
            // The clock may be set during the wait, which is noticed within a minute.
            let wait = Duration.seconds(max(0.01, date.timeIntervalSince(now.wall)))
            schedule?.nextLook = facts.now.uptime + min(wait, Facts.longestPause)
        case .signOut(let reason): signOutAutomatically(because: reason)
        }
    }
}
