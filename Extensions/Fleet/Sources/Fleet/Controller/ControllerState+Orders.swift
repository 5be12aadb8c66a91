package struct RecordedOrder: Sendable, Hashable {
    package enum Target: Sendable, Hashable {
        case all
        /// The target devices, sorted and unique, without devices that are only counted.
        case devices([String])
    }

    package let order: FleetOrder
    package internal(set) var target: Target
    /// Target devices that are no longer named, as they were at that time. The names of many large orders would fill
    /// memory and disk.
    package internal(set) var counted: OrderCounts
    /// Seconds since 1970.
    package let at: Double

    /// - Parameter target: names in any order.
    package init(order: FleetOrder, target: Target, counted: OrderCounts = OrderCounts(), at: Double) {
        self.order = order
        self.target = if case .devices(let names) = target { .devices(names.sorted()) } else { target }
        self.counted = counted
        self.at = at
    }

    package var number: UInt64 { order.number }
    package var scope: OrderScope { target == .all ? .all : .own }

    /// Whether the order waits for this device. It never waits for an unlisted one (FL-14).
    package func isFor(_ name: String, _ device: FleetDevice) -> Bool {
        guard device.isListed else { return false }
        switch target {
        case .all: return true
        case .devices(let names):
            let place = names.place { $0 < name }
            return place < names.count && names[place] == name
        }
    }

    /// The number of target devices; `nil` for all.
    package var count: UInt64? { target == .all ? nil : UInt64(nameCount) + counted.total }

    var nameCount: Int { if case .devices(let names) = target { names.count } else { 0 } }
}

extension [String] {
    /// For a sorted array: the number of leading elements that satisfy the predicate.
    func place(_ isBefore: (String) -> Bool) -> Int {
        var range = startIndex..<endIndex
        while !range.isEmpty {
            let middle = range.lowerBound + range.count / 2
            range = isBefore(self[middle]) ? middle + 1..<range.upperBound : range.lowerBound..<middle
        }
        return range.lowerBound
    }
}

package enum OrderTarget: Sendable, Hashable {
    case all
    case devices([String])
    case group(String)
}

/// The reason why the controller rejects a request, with the remedy.
package struct FleetRefusal: Error, Sendable, Hashable, CustomStringConvertible {
    package let description: String

    package init(_ description: String) { self.description = description }
}

extension ControllerState {
    /// Issues an order. It is published after it is stored.
    package mutating func order(
        _ target: OrderTarget,
        session: UInt64?,
        reason: String,
        now: Double
    ) throws(FleetRefusal) -> ControllerRecord {
        guard reason.unicodeScalars.count <= FleetOrder.longestReason else {
            throw FleetRefusal("the reason has more than \(FleetOrder.longestReason) characters; shorten it")
        }
        // JSON has no larger whole numbers, so devices could not parse the order.
        guard session.map({ $0 < 1 << 53 }) ?? true else {
            throw FleetRefusal("no session has that number; see “fleet devices”")
        }
        let names = try resolve(target)
        // Also above the numbers that devices have seen, because the database may have been lost.
        let seen = devices.values.lazy.compactMap(\.report).map { max($0.seen.all, $0.seen.own) }
            .filter { $0 < Self.plausibleNumber }.max()
        let number = max(highest, seen ?? 0) + 1
        // A new order replaces a pending one and so must cover its session. For each device only its own pending order
        // counts.
        let own = names?.map { (name: $0, session: merged(session, devices[$0]?.desired, [$0], .own, now)) }
        let asked = names == nil ? merged(session, desired, Array(devices.keys), .all, now) : session
        let order = FleetOrder(number: number, session: asked, reason: reason)
        highest = number
        let recorded = RecordedOrder(order: order, target: names.map { .devices($0) } ?? .all, at: now)
        orders.append(recorded)
        if orders.count > Self.mostOrders { orders.removeFirst() }
        if let own {
            for (name, session) in own {
                devices[name]?.desired = FleetOrder(number: number, session: session, reason: reason)
                unpublished.insert(name)
            }
        } else {
            desired = order
            mustPublishAll = true
        }
        askingForReports.begin(now)
        askingForPresence.begin(now)
        // If the server rejected the previous order on this topic, rejecting this one is no news.
        sendingAgain.hasten(now)
        revision += 1
        return .order(recorded, shortened: shortenOrders(now))
    }

    /// The most orders that the controller keeps.
    package static let mostOrders = 1000
    /// The most names in these orders together. The last order may name all devices. So may the earlier orders
    /// together, because a device waits only for its newest order.
    package static let mostNames = 2 * mostDevices

    /// Removes names from the oldest orders until few enough are left. Devices that are done or have a later order
    /// become numbers in the order's counts. Devices that still wait for this order stay named.
    ///
    /// - Returns: the changed orders.
    private mutating func shortenOrders(_ now: Double) -> [RecordedOrder] {
        var count = orders.reduce(0) { $0 + $1.nameCount }
        var shortened: [RecordedOrder] = []
        for index in orders.indices.dropLast() where count > mostNames {
            guard case .devices(let names) = orders[index].target else { continue }
            let number = orders[index].number
            var kept: [String] = []
            for name in names {
                // A device that was removed from the list is not counted at all.
                guard let device = devices[name], device.isListed else { continue }
                let standing = device.standing(number, .own, highest: highest, now: now)
                if device.desired?.number == number, !standing.isDone {
                    kept.append(name)
                } else {
                    orders[index].counted.add(standing)
                }
            }
            guard kept.count < names.count else { continue }
            orders[index].target = .devices(kept)
            count -= names.count - kept.count
            shortened.append(orders[index])
        }
        return shortened
    }

    /// The same names as the keys of ``devices``, to share their storage.
    func own(_ names: [String]) -> [String] {
        names.map { name in devices.index(forKey: name).map { devices[$0].key } ?? name }
    }

    /// - Returns: the devices; `nil` for all.
    private func resolve(_ target: OrderTarget) throws(FleetRefusal) -> [String]? {
        switch target {
        case .all:
            // An order for no device would seem done at once.
            guard devices.values.contains(where: \.isListed) else {
                throw FleetRefusal("no device is in the list; add some with “fleet device add”")
            }
            return nil
        case .devices(let names):
            guard !names.isEmpty else { throw FleetRefusal("no device is named; name one, or all") }
            if let stranger = names.first(where: { devices[$0]?.isListed != true }) {
                throw FleetRefusal("\(stranger) is not in the list; add it with “fleet device add”")
            }
            return own(Array(Set(names)))
        case .group(let group):
            let names = devices.filter { $0.value.isListed && $0.value.groups.contains(group) }.map(\.key)
            guard !names.isEmpty else { throw FleetRefusal("no device is in the group \(group); see “fleet devices”") }
            return names
        }
    }

    /// The session of a new order that replaces `old`, if that may be pending on these devices: `nil` takes precedence,
    /// then the higher one.
    private func merged(
        _ session: UInt64?,
        _ old: FleetOrder?,
        _ names: [String],
        _ scope: OrderScope,
        _ now: Double
    ) -> UInt64? {
        guard let session, let old else { return session }
        let isSettled = names.allSatisfy { name in
            devices[name].map { !$0.isListed || $0.standing(old.number, scope, highest: highest, now: now).isDone }
                ?? true
        }
        if isSettled { return session }
        return old.session.map { max($0, session) }
    }

    package func order(_ number: UInt64) -> RecordedOrder? { orders.last { $0.number == number } }
}
