/// How many devices there are in each state of an order.
package struct OrderCounts: Sendable, Hashable {
    /// By ``Standing/rank``.
    package private(set) var byRank = [UInt64](repeating: 0, count: Standing.words.count)
    /// No number is higher: devices may claim more apps together than any fleet has, and what is written has to be read again.
    private static let most: UInt64 = (1 << 53) - 1

    /// Apps that were let off.
    package private(set) var waived: UInt64 = 0
    /// Apps that were stopped, and whose data was deleted in their place.
    package private(set) var enforced: UInt64 = 0

    package init() {}

    /// As it was stored; the empty text is an order of which nothing was counted.
    ///
    /// - Throws: ``FleetRefusal`` for any other text. Counted as nothing, devices that have not done the order would seem done.
    package init(_ text: String) throws(FleetRefusal) {
        if text.isEmpty { return }
        let words = text.split(separator: " ", omittingEmptySubsequences: false)
        // The last word may have two numbers: those that were waived and those that were enforced.
        let apps = words.last.map { $0.split(separator: "+", maxSplits: 1, omittingEmptySubsequences: false) } ?? []
        let numbers = (words.dropLast() + apps).compactMap { UInt64($0) }.filter { $0 <= Self.most }
        guard words.count == byRank.count + 1, numbers.count == byRank.count + apps.count else {
            throw FleetRefusal("“\(text.prefix(100))” does not say how many devices are in each state of an order")
        }
        byRank = Array(numbers.prefix(byRank.count))
        waived = numbers[byRank.count]
        enforced = apps.count > 1 ? numbers[byRank.count + 1] : 0
    }

    /// For the file.
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

    /// Devices of which nothing is known.
    package mutating func addUnknown(_ count: UInt64) { Self.add(count, to: &byRank[Standing.unknown.rank]) }

    private static func add(_ more: UInt64, to sum: inout UInt64) { sum = min(sum + min(more, most), most) }
}

/// How far the devices of an order are, counted some at a time: there may be 100,000, and others want to change what is known of them meanwhile.
/// Each device counts once, as it is when its turn comes.
package struct OrderProgress: Sendable {
    package let order: RecordedOrder
    package private(set) var counts: OrderCounts
    /// How many devices are wanted in ``worst``.
    private let limit: Int
    private var undone = [[(name: String, standing: Standing)]](repeating: [], count: Standing.words.count)
    /// The device that was counted last.
    private var last: String?

    package init(of order: RecordedOrder, atMost limit: Int) {
        self.order = order
        self.limit = limit
        counts = order.counted
    }

    /// The worst of those that are not done and are named, each state by name.
    package var worst: [(name: String, standing: Standing)] { Array(undone.joined().prefix(limit)) }

    /// Counts the next devices, so many at the most.
    ///
    /// - Returns: whether there may be more.
    package mutating func count(_ most: Int, in state: ControllerState, now: Double) -> Bool {
        let names: [String] =
            switch order.target {
            case .all: state.names
            case .devices(let some): some
            }
        let begin = last.map { last in names.place { $0 <= last } } ?? 0
        let end = min(begin + most, names.count)
        for name in names[begin..<end] {
            // Whoever is not listed, or not any more, counts for no order (FL-14).
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

extension ControllerState {
    /// How far each device is that the order is for and names: those that are listed (FL-14).
    package func standings(of recorded: RecordedOrder, now: Double) -> [(name: String, standing: Standing)] {
        let names: [String] =
            switch recorded.target {
            case .all: Array(devices.keys)
            case .devices(let names): names
            }
        return names.compactMap { name in
            guard let device = devices[name], device.isListed else { return nil }
            return (name, device.standing(recorded.number, recorded.scope, highest: highest, now: now))
        }
    }

    /// How far an order is, counted at once.
    package func progress(of recorded: RecordedOrder, now: Double, atMost limit: Int) -> OrderProgress {
        var progress = OrderProgress(of: recorded, atMost: limit)
        while progress.count(.max >> 1, in: self, now: now) {}
        return progress
    }

    /// The devices that report and are not listed.
    package var unlisted: [String] { devices.filter { !$0.value.isListed }.map(\.key).sorted() }
}
