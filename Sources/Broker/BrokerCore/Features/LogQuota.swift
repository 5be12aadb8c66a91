import Basics
import Logging
@_spi(Extensions) import SharedDevice

/// Keeps callers from filling the log, with refused requests and with events that they can repeat.
struct LogQuota: Sendable {
    private var refusals = LogLimiter()
    private var events = LogLimiter(limit: 60)
    /// The number of repeatable entries by session and app.
    private var entries: [UInt64: [Participant: Int]] = [:]

    /// How many repeatable entries one app may cause in one session. A round may stay open for months, and its entries
    /// are kept until then.
    static let entriesOfApp = 200

    var next: Duration? {
        guard let refusal = refusals.nextSummary else { return events.nextSummary }
        return min(refusal, events.nextSummary ?? refusal)
    }

    mutating func passTime(_ facts: Facts) -> [Decision] {
        refusals.summaries(at: facts.now.uptime).map { .log(.refused, app: $0.app, detail: $0.detail) }
            + events.summaries(at: facts.now.uptime).map { .log(.reported, app: $0.app, detail: $0.detail) }
    }

    mutating func refused(_ refusal: Refusal, method: String, app: String, user: UInt32, _ facts: Facts) -> [Decision] {
        guard refusals.admits(user, app, refusal.code.description, at: facts.now.uptime) else { return [] }
        let details = ["request": method, "app": app, "reason": refusal.description.printable(1000)]
        return [.log(.refused, app: app, detail: "\(refusal.code) \(method)"), .note(.notice, "refused", details)]
    }

    /// Logs an event that an app can repeat, unless the app has reached a limit.
    mutating func repeated(
        _ event: AuditEntry.Event,
        _ kind: String,
        _ session: UInt64,
        _ participant: Participant,
        detail: String?,
        _ facts: Facts
    ) -> [Decision] {
        guard events.admits(participant.user, participant.app, kind, at: facts.now.uptime) else { return [] }
        // The sessions that the ledger has forgotten are not counted any more.
        if entries.count > facts.ledger.sessions.count {
            entries = entries.filter { facts.ledger.sessions[$0.key] != nil }
        }
        let count = (entries[session]?[participant] ?? 0) + 1
        guard count <= Self.entriesOfApp else { return [] }
        entries[session, default: [:]][participant] = count
        let words = "the last entry of this app in this session that it can repeat"
        let text = count < Self.entriesOfApp ? detail : [detail, words].compactMap(\.self).joined(separator: "; ")
        return [.log(event, session: session, participant: participant, detail: text)]
    }

    mutating func forget(_ session: UInt64) { entries[session] = nil }
}
