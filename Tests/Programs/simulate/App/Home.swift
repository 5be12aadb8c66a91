@_spi(Extensions) import SharedDevice
import SharedDeviceBroker

/// An app of one user, with the data that all of its processes share on the disk. Each change of the record is forced
/// to the disk. So is the removal of user data once it was reported.
struct Home {
    static let stores = ["orders", "photos"]

    let participant: Participant
    var record = SessionRecord()
    var journal: CleanupJournal?
    /// The sessions whose data each store has.
    var data: [Set<UInt64>] = [[], []]
    /// Removed data whose removal was not forced to the disk. Only an app with a deliberate mistake has any.
    var unsynced: [Set<UInt64>] = [[], []]

    init(_ participant: Participant) { self.participant = participant }

    /// Changes the record as the library does: a change without news is not written.
    mutating func update<Value>(_ body: (inout SessionRecord) -> Value) -> Value {
        var changed = record
        let value = body(&changed)
        if changed.hasNews(since: record) { record = changed }
        return value
    }

    var sessions: Set<UInt64> { data[0].isEmpty ? data[1] : data[0].union(data[1]) }

    mutating func remove(_ sessions: [UInt64], from store: Int, isSynced: Bool) {
        if !isSynced { unsynced[store].formUnion(data[store].intersection(sessions)) }
        data[store].subtract(sessions)
    }

    mutating func cutPower() {
        for store in data.indices { data[store].formUnion(unsynced[store]) }
        unsynced = [[], []]
    }
}
