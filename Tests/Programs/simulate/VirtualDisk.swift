package import BrokerCore
package import Foundation
import SharedDevice

/// The disk of a virtual device: the rows that the store keeps.
package struct VirtualDisk {
    package var device = DeviceState.initial
    package var membership: Membership?
    package var sessions: [UInt64: CleanupLedger.Session] = [:]
    package var parts: [UInt64: [Participant: CleanupLedger.Part]] = [:]
    package var claims: [Participant: CleanupLedger.Claim] = [:]
    package var log: [AuditEntry] = []
    package var lastActivity: Date?
    /// The activity that a power cut leaves.
    private var syncedActivity: Date?
    /// The stored data of the organisation's provider, and the device state that it belongs to.
    package var provider: ProviderSession?
    package var providerOwner: DeviceState?
    package var outbox: [UInt64: ProviderOutbox.Entry] = [:]
    package var compliance: ComplianceWord?
    /// The last noted state without an account. It survives a kill of the broker; only ``safelyNoted`` survives a power
    /// cut.
    private var noted: (state: DeviceState, date: Date)?
    private var safelyNoted: (state: DeviceState, date: Date)?

    package init() {}

    package mutating func commit(_ batch: Batch) {
        if let device = batch.device { self.device = device }
        if let membership = batch.membership { self.membership = membership }
        for (number, session) in batch.sessions {
            sessions[number] = session
            if session == nil { parts[number] = nil }
        }
        for (number, participants) in batch.parts {
            for (participant, part) in participants { parts[number, default: [:]][participant] = part }
        }
        for (participant, claim) in batch.claims { claims[participant] = claim }
        if let provider = batch.provider { (self.provider, providerOwner) = (provider, batch.providerOwner) }
        for (number, entry) in batch.outbox { outbox[number] = entry }
        if let compliance = batch.compliance { self.compliance = compliance }
        log += batch.log
    }

    package mutating func fail(_ batch: Batch) { if batch.device != nil { safelyNoted = noted } }

    package mutating func note(_ state: DeviceState, at date: Date) { noted = (state, date) }

    /// A note or time stamp that was not forced to the disk may be there or not. It is never torn: its text is shorter
    /// than a disk's atomic write, and the rest of the file never changes.
    package mutating func cutPower(keepsUnsynced: () -> Bool = { false }) {
        if keepsUnsynced() { safelyNoted = noted } else { noted = safelyNoted }
        if keepsUnsynced() { syncedActivity = lastActivity } else { lastActivity = syncedActivity }
    }

    /// Keeps the time stamp without waiting for the disk.
    ///
    /// - Parameter isOldSynced: whether the previous time stamp has reached the disk by now.
    package mutating func keepActivity(_ date: Date, isOldSynced: Bool) {
        if isOldSynced { syncedActivity = lastActivity }
        lastActivity = date
    }

    /// The noted state, if it is later than the rows.
    package var laterState: (state: DeviceState, date: Date)? {
        noted.flatMap { $0.state.epoch > device.epoch ? $0 : nil }
    }

    /// The ledger as the broker reads it at its start, without state that is kept in memory only.
    package func ledger(at now: Moment) -> CleanupLedger {
        let sessions = sessions.mapValues { session in
            var session = session
            session.endedUptime = session.endedAt.map { now.uptime - .seconds(max(0, now.wall.timeIntervalSince($0))) }
            return session
        }
        let parts = parts.mapValues { parts in
            parts.mapValues { part in
                var part = part
                part.isReported = false
                part.reported = []
                if part.mark != 0 { part.mark = CleanupLedger.newMark() }
                return part
            }
        }
        return CleanupLedger(sessions: sessions, parts: parts.filter { !$0.value.isEmpty }, claims: claims)
    }
}
