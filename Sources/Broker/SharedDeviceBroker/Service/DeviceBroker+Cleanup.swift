import Foundation
package import SharedDevice

/// The rounds of cleanup after each session (architecture, D10).
extension DeviceBroker {
    /// Records an app's report on its cleanup. When this returns, a settled duty is on the disk. A report on a cleanup that the app does not
    /// owe changes nothing: the same report may come twice.
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

    /// An administrator declares an app's cleanup done.
    ///
    /// - Parameter epoch: the session; `nil` means every session that the app owes.
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

    /// The app's last process has left the bus. It owes again what it had begun, and the bus is asked to start it.
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

    /// Adds an entry to the log.
    package func note(_ event: AuditEntry.Event, app: String? = nil, detail: String? = nil) {
        change([AuditEntry(event, at: surroundings.now(), app: app, detail: detail)]) { _ in }
        writeSoon()
    }

    /// Moves what the ledger lists under one key to another. Both name the same app; it now has a manifest.
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

    /// A round and its revision, which grows with each change. Waits for a revision later than `known`, at most until `deadline`.
    ///
    /// - Parameters:
    ///   - epoch: the session; `nil` means the session that ended last.
    ///   - awaitsEnd: whether to answer before the deadline only when the round is complete.
    /// - Returns: `nil` if there is no such round.
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
            // There is no such round, so there is nothing to wait for.
            guard ledger.sessions[epoch]?.outcome != nil else { return nil }
            await waitForChange(after: revision, until: deadline)
        }
    }

    // MARK: The next sign-in

    /// Waits until no open round holds up a sign-in.
    ///
    /// - Throws: ``DeviceRefusal`` when the deadline comes first.
    func waitForCleanups(until deadline: ContinuousClock.Instant) async throws {
        while isSignInHeld {
            guard deadline > .now else { throw DeviceRefusal.cleanupPending(awaited) }
            await waitForChange(after: revision, until: deadline)
        }
    }

    /// The check that comes right before a sign-in is committed.
    func checkCleanups(of app: String) throws(DeviceRefusal) {
        if isSignInHeld { throw .cleanupPending(awaited) }
        if policy.isStrict, !ledger.owed(by: app).isEmpty { throw .cleanupRequired }
    }

    /// The apps that a sign-in would have to wait for.
    package var signInHeldFor: [String] { isSignInHeld ? awaited : [] }

    /// Whether an open round holds up the next sign-in. A round that outlasts the policy's timeout expires and holds up nobody; a policy
    /// without a timeout waits for rounds that expired under an earlier policy too.
    private var isSignInHeld: Bool {
        if waitsWithoutEnd { return !ledger.incompleteRounds.isEmpty }
        return policy.timeout != nil && !ledger.openRounds.isEmpty
    }

    private var awaited: [String] { waitsWithoutEnd ? ledger.debtors.sorted() : ledger.awaited }

    private var waitsWithoutEnd: Bool { policy.isStrict && policy.timeout == nil }
}
