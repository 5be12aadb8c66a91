import SharedDevice
import SharedDeviceBroker

/// An app as one user runs it: what all of its processes share on the disk. The record is forced to the disk at each change; user data is
/// too, once its removal was reported.
struct Home {
    static let stores = ["orders", "photos"]

    let participant: Participant
    var record = SessionRecord()
    var journal: CleanupJournal?
    /// The sessions of which each store has data.
    var data: [Set<UInt64>] = [[], []]
    /// What was removed and not forced to the disk: only an app that makes a mistake has any.
    var unsynced: [Set<UInt64>] = [[], []]

    init(_ participant: Participant) { self.participant = participant }

    /// Changes the record as the library does: what is no news goes unwritten, and is found as it was the next time.
    mutating func update<Value>(_ body: (inout SessionRecord) -> Value) -> Value {
        var changed = record
        let value = body(&changed)
        if changed.hasNews(since: record) { record = changed }
        return value
    }

    /// The sessions of which any store has data.
    var sessions: Set<UInt64> { data[0].isEmpty ? data[1] : data[0].union(data[1]) }

    /// Removes data of these sessions from a store.
    mutating func remove(_ sessions: [UInt64], from store: Int, isSynced: Bool) {
        if !isSynced { unsynced[store].formUnion(data[store].intersection(sessions)) }
        data[store].subtract(sessions)
    }

    mutating func cutPower() {
        for store in data.indices { data[store].formUnion(unsynced[store]) }
        unsynced = [[], []]
    }
}
