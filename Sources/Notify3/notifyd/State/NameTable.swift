import NotifyCenter

/// The names that exist, and their states (Rules, a.11). Pure.
struct NameTable {
    struct Entry: Hashable {
        var state = StateReport(value: 0, time: 0)
        /// The connections that have registered the name, in no order.
        var registrants: [String] = []
        /// The registrant that reports the state to the next notifyd; `nil` if there is none.
        var keeper: String?
        /// Whether the name stays without registrants.
        var isPermanent = false
    }

    private(set) var entries: [NotificationName: Entry] = [:]

    mutating func enter(_ name: NotificationName, _ connection: String) {
        entries[name, default: Entry()].registrants.append(connection)
    }

    /// Removes a registrant. The last one takes an ordinary name and its state with it.
    mutating func leave(_ name: NotificationName, _ connection: String) {
        guard let index = entries.index(forKey: name),
            let position = entries.values[index].registrants.firstIndex(of: connection)
        else { return }
        entries.values[index].registrants.swapAt(position, entries.values[index].registrants.count - 1)
        entries.values[index].registrants.removeLast()
        if entries.values[index].keeper == connection { entries.values[index].keeper = nil }
        if entries.values[index].registrants.isEmpty, !entries.values[index].isPermanent { entries.remove(at: index) }
    }

    /// Sets the state of a name, and makes the registrant its keeper. The newest state wins; of two states with the
    /// same time, the later call wins. Does nothing if the name does not exist.
    mutating func set(_ name: NotificationName, _ state: StateReport, by connection: String) {
        guard let index = entries.index(forKey: name), state.time >= entries.values[index].state.time else { return }
        entries.values[index].state = state
        entries.values[index].keeper = connection
    }

    /// The registrants from which a new keeper of the state must be chosen. Empty if the name has a keeper, or no
    /// state.
    func heirs(of name: NotificationName) -> [String] {
        guard let entry = entries[name], entry.keeper == nil, entry.state.time > 0 else { return [] }
        return entry.registrants
    }

    /// Makes a registrant the keeper of the state. Returns the state.
    mutating func handOver(_ name: NotificationName, to connection: String) -> StateReport? {
        guard let index = entries.index(forKey: name) else { return nil }
        entries.values[index].keeper = connection
        return entries.values[index].state
    }

    var permanentCount: Int { entries.values.count { $0.isPermanent } }

    func state(of name: NotificationName) -> UInt64 { entries[name]?.state.value ?? 0 }

    /// Sets the permanent names and their initial states. Earlier permanent names become ordinary names. A name that
    /// exists keeps its state.
    mutating func setPermanent(_ names: [(name: NotificationName, state: UInt64)]) {
        for name in entries.keys where entries[name]?.isPermanent == true { entries[name]?.isPermanent = false }
        for (name, state) in names {
            entries[name, default: Entry(state: StateReport(value: state, time: 0))].isPermanent = true
        }
        entries = entries.filter { $0.value.isPermanent || !$0.value.registrants.isEmpty }
    }
}
