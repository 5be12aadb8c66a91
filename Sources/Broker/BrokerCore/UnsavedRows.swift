/// The rows whose latest change is not on the disk yet, by the version of that change.
///
/// A failed write changes nothing here, so its rows are written again with the next one.
package struct UnsavedRows<Row: Hashable & Sendable>: Sendable, Equatable {
    private var versions: [Row: UInt64] = [:]
    private var version: UInt64 = 0
    /// The last version that the latest write contains.
    private var offered: UInt64 = 0

    package init() {}

    func contains(_ row: Row) -> Bool { versions[row] != nil }

    mutating func insert(_ row: Row) {
        version += 1
        versions[row] = version
    }

    mutating func remove(_ row: Row) { versions[row] = nil }

    /// Returns the rows for a write. One write is in progress at a time.
    package mutating func offer() -> some Collection<Row> {
        offered = version
        return versions.keys
    }

    /// Records that the latest write is on the disk.
    package mutating func saved() {
        if !versions.isEmpty { versions = versions.filter { $0.value > offered } }
    }

    /// The latest of the rows; `nil` if there is none.
    func max() -> Row? where Row: Comparable { versions.keys.max() }
}
