import Foundation
package import SharedDevice

/// The rounds of cleanup after each session (architecture, D10).
extension DeviceBroker {
    /// Takes an app's word on its cleanup. When this returns, a settled duty is on the disk. A report on what the app does not owe is
    /// accepted and changes nothing: the same report may come twice.
    ///
    /// - Throws: ``StoreError``.
    package func report(
        _ progress: CleanupReport.Progress,
        of epoch: UInt64,
        by app: String,
        detail: String?
    ) async throws {
        let now = surroundings.now()
        settle(progress, of: epoch, by: app, detail: detail, at: now)
        if progress == .begun { writeSoon() } else { try await written() }
    }

    /// Declares an app's cleanup done, by an administrator's word.
    ///
    /// - Parameter epoch: the session; `nil` for all that the app owes.
    /// - Returns: the sessions that it owed.
    /// - Throws: ``StoreError``.
    package func waive(_ app: String, session epoch: UInt64?, reason: String) async throws -> [UInt64] {
        let now = surroundings.now()
        let owed = ledger.owed(by: app).map(\.epoch).filter { epoch == nil || epoch == $0 }
        for epoch in owed { settle(.waived, of: epoch, by: app, detail: reason, at: now) }
        try await written()
        return owed
    }

    private func settle(
        _ progress: CleanupReport.Progress,
        of epoch: UInt64,
        by app: String,
        detail: String?,
        at now: Date
    ) {
        let event: AuditEntry.Event
        switch progress {
        case .begun: event = .begun
        case .failed: event = .failed
        case .finished: event = .finished
        case .waived: event = .waived
        case .owed, .told: return
        }
        var effect = CleanupLedger.Effect.none
        change([]) { effect = $0.report(progress, of: epoch, by: app, detail: detail, at: now) }
        guard effect != .none else { return }
        var entries = [AuditEntry(event, at: now, session: epoch, app: app, detail: detail)]
        if effect == .completed { entries.append(AuditEntry(.completed, at: now, session: epoch)) }
        change(entries) { _ in }
    }

    /// A process of the app is on the bus.
    package func appStarted(_ app: String) {
        guard running.insert(app).inserted else { return }
        noteChange()
    }

    /// The app's last process has left the bus. What it had begun it owes anew, and is woken for.
    package func appEnded(_ app: String) {
        guard running.remove(app) != nil else { return }
        let now = surroundings.now()
        var interrupted: [UInt64] = []
        change([]) { interrupted = $0.processEnded(app) }
        guard !ledger.owed(by: app).isEmpty else { return }
        change(interrupted.map { AuditEntry(.interrupted, at: now, session: $0, app: app) }) { _ in }
        writeSoon()
        surroundings.wake(app)
    }

    /// The bus was asked to start the app.
    package func wasWoken(_ app: String, detail: String) {
        change([AuditEntry(.woken, at: surroundings.now(), app: app, detail: detail)]) { _ in }
        writeSoon()
    }

    /// Something that the log is to have.
    package func note(_ event: AuditEntry.Event, app: String? = nil, detail: String? = nil) {
        change([AuditEntry(event, at: surroundings.now(), app: app, detail: detail)]) { _ in }
        writeSoon()
    }

    /// What was held by one key is held by another: the same app, known better.
    package func adopt(_ old: String, as new: String) async throws {
        guard ledger.participations.values.contains(where: { $0[old] != nil }) else { return }
        change([]) { _ = $0.rename(old, to: new) }
        try await written()
    }

    /// The apps that were given the account of the session that is open.
    package var holding: [String] {
        state.account == nil ? [] : Array((ledger.participations[state.epoch] ?? [:]).keys)
    }

    /// Whether the app owes a cleanup.
    package func isOwing(_ app: String) -> Bool { !ledger.owed(by: app).isEmpty }

    /// A round, and the number of what it says: a later one has a larger number. Waits for one after `known`, at most until `deadline`.
    ///
    /// - Parameters:
    ///   - epoch: the session; `nil` for the one that ended last.
    ///   - awaitsEnd: whether only the round's completion is worth an answer before the deadline.
    /// - Returns: `nil` where there is no such round.
    package func round(
        of epoch: UInt64?,
        after known: UInt64? = nil,
        awaitsEnd: Bool = false,
        until deadline: ContinuousClock.Instant = .now
    ) async -> (report: CleanupReport, revision: UInt64)? {
        guard let epoch = epoch ?? ledger.rounds.last else { return nil }
        while true {
            let isComplete = ledger.sessions[epoch]?.outcome == .complete
            if isComplete || (revision != known && !awaitsEnd) || deadline <= .now {
                return ledger.report(of: epoch, running: running).map { ($0, revision) }
            }
            // Not a round, and nothing to wait for.
            guard ledger.sessions[epoch]?.outcome != nil else { return nil }
            await waitForChange(after: revision, until: deadline)
        }
    }

    // MARK: The next sign-in

    /// Waits until no round is in the way of a sign-in.
    ///
    /// - Throws: ``DeviceRefusal`` when the deadline comes first.
    func waitForCleanups(until deadline: ContinuousClock.Instant) async throws {
        while isSignInHeld {
            guard deadline > .now else { throw DeviceRefusal.cleanupPending(awaited) }
            await waitForChange(after: revision, until: deadline)
        }
    }

    /// Right before somebody is signed in.
    func checkCleanups(of app: String) throws(DeviceRefusal) {
        if isSignInHeld { throw .cleanupPending(awaited) }
        if policy.isStrict, !ledger.owed(by: app).isEmpty { throw .cleanupRequired }
    }

    /// The apps that a sign-in would have to wait for.
    package var signInHeldFor: [String] { isSignInHeld ? awaited : [] }

    /// Whether a round is open that the policy has people wait for. Those that it does not wait for any more have expired; a policy that
    /// waits without end waits for what expired under another one, too.
    private var isSignInHeld: Bool {
        if waitsWithoutEnd { return !ledger.incompleteRounds.isEmpty }
        return policy.timeout != nil && !ledger.openRounds.isEmpty
    }

    private var awaited: [String] { waitsWithoutEnd ? ledger.debtors.sorted() : ledger.awaited }

    private var waitsWithoutEnd: Bool { policy.isStrict && policy.timeout == nil }
}
