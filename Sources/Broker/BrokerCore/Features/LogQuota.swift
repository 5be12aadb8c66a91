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

/// Keeps callers from filling the log. For each user, app and reason it admits a number of entries a minute, and then
/// one entry that counts the others.
package struct LogLimiter: Sendable {
    private struct Key: Hashable {
        let user: UInt32
        let app: String
        let reason: String
    }

    private struct Window {
        let beganAt: Duration
        var admitted = 0
        var suppressed = 0
    }

    /// The entries that were counted but not logged in a window that is over.
    package struct Summary: Sendable, Equatable {
        package let app: String
        package let reason: String
        package let count: Int

        package var detail: String { "\(reason) … and \(count) more" }
    }

    package static let window = Duration.seconds(60)
    /// How many windows each user has. Callers can invent names at no cost, so further pairs of app and reason share
    /// one.
    package static let windowsOfUser = 50
    /// The name in the log for the pairs that share a window.
    package static let others = "other apps"

    private let limit: Int
    private var windows: [Key: Window] = [:]
    private var counts: [UInt32: Int] = [:]
    /// The earliest beginning of a window; `nil` if there is none. It avoids a search of all windows at each event.
    private var oldest: Duration?
    /// Whether a window has entries that were counted but not logged.
    private var isCounting = false

    /// - Parameter limit: The number of entries a minute for each user, app and reason.
    package init(limit: Int = 10) { self.limit = limit }

    /// Whether the log gets an entry. An entry that it does not get is counted.
    package mutating func admits(_ user: UInt32, _ app: String, _ reason: String, at now: Duration) -> Bool {
        var key = Key(user: user, app: app, reason: reason)
        if windows[key] == nil, counts[user] ?? 0 >= Self.windowsOfUser {
            if hasEnded(at: now) { keep(windows.filter { $0.value.suppressed > 0 || !isOver($0.value, at: now) }) }
            if counts[user] ?? 0 >= Self.windowsOfUser { key = Key(user: user, app: Self.others, reason: "") }
        }
        if windows[key] == nil {
            counts[user, default: 0] += 1
            oldest = min(oldest ?? now, now)
        }
        var current = windows[key] ?? Window(beganAt: now)
        // A window that is over continues until its summary was taken.
        if isOver(current, at: now), current.suppressed == 0 { current = Window(beganAt: now) }
        defer { windows[key] = current }
        guard current.admitted < limit else {
            current.suppressed += 1
            isCounting = true
            return false
        }
        current.admitted += 1
        return true
    }

    /// When the next summary is due; `nil` if there is none.
    package var nextSummary: Duration? {
        isCounting ? windows.values.filter { $0.suppressed > 0 }.map { $0.beganAt + Self.window }.min() : nil
    }

    package mutating func summaries(at now: Duration) -> [Summary] {
        guard hasEnded(at: now) else { return [] }
        let over = windows.filter { isOver($0.value, at: now) }
        keep(windows.filter { over[$0.key] == nil })
        return over.filter { $0.value.suppressed > 0 }
            .map { Summary(app: $0.key.app, reason: $0.key.reason, count: $0.value.suppressed) }
            .sorted { ($0.app, $0.reason) < ($1.app, $1.reason) }
    }

    private func isOver(_ window: Window, at now: Duration) -> Bool { now >= window.beganAt + Self.window }

    /// Whether some window may be over.
    private func hasEnded(at now: Duration) -> Bool { oldest.map { now >= $0 + Self.window } ?? false }

    private mutating func keep(_ kept: [Key: Window]) {
        windows = kept
        counts = kept.keys.reduce(into: [:]) { $0[$1.user, default: 0] += 1 }
        oldest = kept.values.map(\.beganAt).min()
        isCounting = kept.values.contains { $0.suppressed > 0 }
    }
}
