import DBusTransport
import DeviceConfiguration
import FoundationEssentials
import SharedDevice

/// The rounds of cleanup after each session (architecture, D10), and what ends a session by itself.
extension BrokerState {
    // MARK: Reports

    /// Takes an app's report. The answer to a settled duty waits for the disk. A report on a cleanup that the app does not owe changes
    /// nothing: the same report may come twice. The answer says where a receipt does not count because its sender began under another mark.
    mutating func report(
        _ request: Request,
        _ progress: CleanupReport.Progress,
        _ session: UInt64,
        _ participant: Participant,
        _ mark: UInt64,
        _ detail: String?
    ) -> BrokerProtocol.Fields? {
        let before = ledger.parts[session]?[participant]
        let effect = ledger.report(
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
        case .detailed: needsDisk(within: Self.lazyWrite)
        case .refused where ledger.parts[session]?[participant] != before:
            let words = "the cleanup does not count: a connection of the app has left meanwhile without a report"
            enterRepeatable(.interrupted, "reports", session, participant, detail: words)
            needsDisk(within: .zero)
            if reminder == nil { remind() }
            touch()
        case .refused: break
        case .recorded, .completed:
            noteSettled(progress, session, participant, detail: detail)
            needsDisk(within: progress == .begun ? Self.lazyWrite : .zero)
            if reminder == nil, ledger.isIdle(participant) { remind() }
            touch()
        }
        guard progress != .begun else { return [:] }
        wait(request, for: .stored(effect == .refused ? ["again": .boolean(true)] : [:], participant))
        return nil
    }

    /// An administrator declares an app's cleanup done.
    ///
    /// - Parameters:
    ///   - user: the user that runs the app; `nil` means every one.
    ///   - session: `nil` means every session that the app owes.
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
                _ = ledger.report(.waived, of: number, by: participant, on: nil, detail: reason, at: now)
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

    /// Enters an app's progress into the log, and the round's completion.
    mutating func noteSettled(
        _ progress: CleanupReport.Progress,
        _ session: UInt64,
        _ participant: Participant,
        detail: String?
    ) {
        guard let event = AuditEntry.Event(rawValue: progress.rawValue) else { return }
        // What settles a duty happens once.
        if ledger.parts[session]?[participant]?.progress?.isSettled == true {
            enterLog(event, session: session, participant: participant, detail: detail)
        } else {
            enterRepeatable(event, "reports", session, participant, detail: detail)
        }
        noteCompletion(session)
    }

    /// How many entries one app may bring about in one session again and again. A round may stay open for months, and its entries stay as long.
    static let entriesOfPart = 200

    /// Enters into the log what an app can bring about again and again, as often as the log takes it.
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
        erases = true
    }

    mutating func tell(_ participant: Participant) {
        // The note that an app was told is for people only: what it owes is on the disk already.
        for number in ledger.tell(participant, at: now) {
            enterRepeatable(.told, "told", number, participant)
            needsDisk(within: Self.lazyWrite)
            touch()
        }
    }

    /// The app's last process has left the bus. It owes again what it had begun, and the bus is asked to start it.
    mutating func appEnded(_ participant: Participant) {
        for number in ledger.processEnded(participant) {
            enterRepeatable(.interrupted, "interrupted", number, participant)
            needsDisk(within: Self.lazyWrite)
        }
        touch()
        if ledger.owes(participant) { wake(participant.app) }
    }

    // MARK: Questions

    /// A round and its revision, which grows with each change.
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

    // MARK: The next sign-in

    /// Whether an open round holds up the next sign-in. A round that outlasts the policy's timeout expires and holds up nobody; a policy
    /// without a timeout waits for rounds that expired under an earlier policy too.
    var isSignInHeld: Bool {
        // What is being deleted must not be the next person's.
        if !ledger.claims.isEmpty { return true }
        if waitsWithoutEnd { return ledger.hasIncompleteRounds }
        return policy.cleanup.timeout != nil && !ledger.openRounds.isEmpty
    }

    /// The apps that a sign-in has to wait for.
    var awaited: [String] {
        Set((waitsWithoutEnd ? ledger.debtors : ledger.awaited).union(ledger.claims.keys).map(\.app)).sorted()
    }

    private var waitsWithoutEnd: Bool { policy.cleanup.longestWait == nil }

    // MARK: Reminding and starting apps

    static let firstReminder = Duration.seconds(2)
    static let longestPause = Duration.seconds(60)

    /// Announces again, at growing intervals, while an app that runs does not see to what it owes: neither a broadcast that it lost nor an answer
    /// that it did not heed, because the question led to no cleanup, may keep a round open.
    ///
    /// - Parameter isForAll: whether the first one is sent although no process is known that it is for. One that has reported is not listed with its
    ///   debt any more, and where manifests or policy have changed since, it is recognised only when it calls.
    mutating func remind(isForAll: Bool = false) {
        // Never later than it was: an app could put off the reminder of all others.
        let due = now.uptime + Self.firstReminder
        let at = reminder.map { min($0.at, due) } ?? due
        reminder = (at, Self.firstReminder, isForAll || reminder?.isForAll == true)
    }

    mutating func remindIfDue() {
        guard let due = reminder, due.at <= now.uptime else { return }
        // A process that lost its part for a moment, while manifests and policy changed, is recognised again only when it calls. Until then its
        // debt still names its connection.
        let present = ledger.participants { $1.connections.contains { connected[$0] != nil } }
        guard ledger.idle.contains(where: { due.isForAll || isRunning($0) || present.contains($0) }) else {
            reminder = nil
            return
        }
        effects.append(.announce(modeChanged: false))
        let pause = min(due.pause * 2, Self.longestPause)
        reminder = (now.uptime + pause, pause, false)
    }

    /// The bus's attempts to start an app that owes a cleanup. They go on while it owes something, at intervals that grow to a minute: an app
    /// that crashes at each start does not keep the device busy, and one that is repaired is started.
    struct Wake: Sendable {
        /// When the next attempt is due; `nil` while one is under way.
        var next: Duration?
        var pause = Duration.milliseconds(500)
        /// Whether the next one waits for a claim to end.
        var isPostponed = false
        /// Why the last attempt failed. The same reason is logged once.
        var problem: String?
    }

    mutating func wakeDebtors() { for app in Set(ledger.debtors.map(\.app)).sorted() { wake(app) } }

    /// Starts the app if it has a bus name. An app without one has to start by itself.
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
        // It may start again when nobody deletes its data any more.
        guard !ledger.claims.keys.contains(where: { $0.app == app }) else {
            wakes[app]?.next = now.uptime + Self.longestPause
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
            let detail = "could not be started as \(name): \(reason.forLog(300))"
            if detail != wake.problem { enterLog(.woken, app: app, detail: detail) }
            wake.problem = detail
        case .noBus: break
        }
        wake.next = now.uptime + wake.pause
        wake.pause = min(wake.pause * 2, Self.longestPause)
        wakes[app] = wake
    }

    private func busName(of app: String) -> String? { manifests.first { $0.identifier == app }?.busName }

    // MARK: What ends a session by itself

    /// Somebody is using the device.
    mutating func noteActivity() {
        guard schedule != nil else { return }
        schedule?.schedule.noteActivity(at: now)
        // Often enough for timeouts that are a matter of minutes.
        if abs(now.wall.timeIntervalSince(lastActivity ?? .distantPast)) >= 1 {
            lastActivity = now.wall
            effects.append(.keepActivity(now.wall))
        }
        lookAtSchedule()
    }

    /// Asks the schedule about the present session.
    mutating func lookAtSchedule() {
        guard device.account != nil, let session = ledger.sessions[device.epoch] else {
            schedule = nil
            return
        }
        var next: SignOutSchedule
        if let schedule, schedule.epoch == device.epoch {
            next = schedule.schedule
        } else {
            // A session of an earlier run goes on from the last time that anybody used the device then; in any other, signing in was that.
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
            // The clock may be set meanwhile: nobody waits longer than a minute to see that.
            let wait = Duration.seconds(max(0.01, date.timeIntervalSince(now.wall)))
            schedule?.nextLook = now.uptime + min(wait, Self.longestPause)
        case .signOut(let reason): signOutAutomatically(because: reason)
        }
    }
}
