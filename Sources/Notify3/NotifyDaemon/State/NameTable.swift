import NotifyCenter
import NotifydProtocol

/// The names that exist, and their states (Rules, a.11). Pure.
struct NameTable {
    struct Entry: Hashable {
        var state = StateReport(value: 0, time: 0)
        /// How many connections have registrations of it.
        var registrants = 0
        /// Whether it stays without any.
        var isPermanent = false
    }

    private(set) var entries: [NotificationName: Entry] = [:]

    /// One more connection has registrations of it.
    mutating func enter(_ name: NotificationName) { entries[name, default: Entry()].registrants += 1 }

    /// One connection less has registrations of it. With the last, its state is gone.
    mutating func leave(_ name: NotificationName) {
        guard var entry = entries[name], entry.registrants > 0 else { return }
        entry.registrants -= 1
        entries[name] = entry.registrants > 0 || entry.isPermanent ? entry : nil
    }

    /// The newest value wins, and of two of the same time the one that comes later. A name that does not exist has none.
    mutating func set(_ name: NotificationName, _ state: StateReport) {
        guard var entry = entries[name], state.time >= entry.state.time else { return }
        entry.state = state
        entries[name] = entry
    }

    /// How many names stay without registrations.
    var permanentCount: Int { entries.values.count { $0.isPermanent } }

    func state(of name: NotificationName) -> UInt64 { entries[name]?.state.value ?? 0 }

    /// Sets the permanent names, with their first states. Earlier permanent names become ordinary ones. A name that exists keeps its
    /// state.
    mutating func setPermanent(_ names: [(name: NotificationName, state: UInt64)]) {
        for name in entries.keys where entries[name]?.isPermanent == true {
            entries[name]?.isPermanent = false
        }
        for (name, state) in names {
            entries[name, default: Entry(state: StateReport(value: state, time: 0))].isPermanent = true
        }
        entries = entries.filter { $0.value.isPermanent || $0.value.registrants > 0 }
    }
}
