/// The number of devices in each state of an order.
package struct OrderCounts: Sendable, Hashable {
    /// Indexed by ``Standing/rank``.
    package private(set) var byRank = [UInt64](repeating: 0, count: Standing.words.count)
    /// The upper bound of each number, which devices may claim. Larger numbers would be unreadable once stored.
    private static let most: UInt64 = (1 << 53) - 1

    /// The apps whose cleanup was waived.
    package private(set) var waived: UInt64 = 0
    /// The apps that the device stopped before deleting their data.
    package private(set) var enforced: UInt64 = 0

    package init() {}

    /// Parses the stored form. The empty text means that no device was counted.
    ///
    /// - Throws: ``FleetRefusal`` for any other text. Treating it as zero would make pending devices seem done.
    package init(_ text: String) throws(FleetRefusal) {
        if text.isEmpty { return }
        let words = text.split(separator: " ", omittingEmptySubsequences: false)
        // The last word may have two numbers: waived and enforced.
        let apps = words.last.map { $0.split(separator: "+", maxSplits: 1, omittingEmptySubsequences: false) } ?? []
        let numbers = (words.dropLast() + apps).compactMap { UInt64($0) }.filter { $0 <= Self.most }
        guard words.count == byRank.count + 1, numbers.count == byRank.count + apps.count else {
            throw FleetRefusal("“\(text.prefix(100))” does not say how many devices are in each state of an order")
        }
        byRank = Array(numbers.prefix(byRank.count))
        waived = numbers[byRank.count]
        enforced = apps.count > 1 ? numbers[byRank.count + 1] : 0
    }

    /// The stored form.
    package var text: String {
        (byRank + [waived]).map(String.init).joined(separator: " ") + (enforced > 0 ? "+\(enforced)" : "")
    }

    package var total: UInt64 { byRank.reduce(0, +) }
    package var undone: UInt64 { byRank.prefix(Standing.firstDoneRank).reduce(0, +) }

    package mutating func add(_ standing: Standing) {
        Self.add(1, to: &byRank[standing.rank])
        guard case .clean(let waived, let enforced) = standing else { return }
        Self.add(waived, to: &self.waived)
        Self.add(enforced, to: &self.enforced)
    }

    package mutating func addUnknown(_ count: UInt64) { Self.add(count, to: &byRank[Standing.unknown.rank]) }

    private static func add(_ more: UInt64, to sum: inout UInt64) { sum = min(sum + min(more, most), most) }
}

/// A count of the devices of an order, in slices: there may be 100,000, and the state must not stay locked. Each device
/// counts once, in its state at that moment.
package struct OrderProgress: Sendable {
    package let order: RecordedOrder
    package private(set) var counts: OrderCounts
    /// The most devices in ``worst``.
    private let limit: Int
    private var undone = [[(name: String, standing: Standing)]](repeating: [], count: Standing.words.count)
    /// The last device counted.
    private var last: String?

    package init(of order: RecordedOrder, atMost limit: Int) {
        self.order = order
        self.limit = limit
        counts = order.counted
    }

    /// The worst of the pending devices that the order names, by state and then by name.
    package var worst: [(name: String, standing: Standing)] { Array(undone.joined().prefix(limit)) }

    /// Counts the next devices, up to `most`. Returns whether there may be more.
    package mutating func count(_ most: Int, in state: ControllerState, now: Double) -> Bool {
        let names = order.names ?? state.names
        let begin = last.map { last in names.place { $0 <= last } } ?? 0
        let end = min(begin + most, names.count)
        for name in names[begin..<end] {
            // An unlisted device counts for no order (FL-14).
            guard let device = state.devices[name], device.isListed else { continue }
            let standing = device.standing(order.number, order.scope, highest: state.highest, now: now)
            counts.add(standing)
            guard !standing.isDone, undone[standing.rank].count < limit else { continue }
            undone[standing.rank].append((name, standing))
        }
        if end > begin { last = names[end - 1] }
        return end < names.count
    }
}
