/// An order as the controller has given it.
package struct RecordedOrder: Sendable, Hashable {
    package enum Target: Sendable, Hashable {
        case all
        /// The devices that were meant when it was given, sorted, each once; without those that are only counted.
        case devices([String])
    }

    package let order: FleetOrder
    package internal(set) var target: Target
    /// Devices that are not named any more, as they were then: of many orders to many devices the names would fill memory and disk.
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

    /// Whether it waits for this device: for none that is not listed, or not any more, whoever the order names (FL-14).
    package func isFor(_ name: String, _ device: FleetDevice) -> Bool {
        guard device.isListed else { return false }
        switch target {
        case .all: return true
        case .devices(let names):
            let place = names.place { $0 < name }
            return place < names.count && names[place] == name
        }
    }

    /// The devices that it was given to; `nil` for all.
    package var count: UInt64? { target == .all ? nil : UInt64(nameCount) + counted.total }

    var nameCount: Int { if case .devices(let names) = target { names.count } else { 0 } }
}

extension [String] {
    /// In a sorted array: how many elements are so, which are those at its beginning.
    func place(_ isBefore: (String) -> Bool) -> Int {
        var range = startIndex..<endIndex
        while !range.isEmpty {
            let middle = range.lowerBound + range.count / 2
            range = isBefore(self[middle]) ? middle + 1..<range.upperBound : range.lowerBound..<middle
        }
        return range.lowerBound
    }
}

/// Whom an administrator means.
package enum OrderTarget: Sendable, Hashable {
    case all
    case devices([String])
    case group(String)
}

/// Why the controller does not take a request. The text names what helps.
package struct FleetRefusal: Error, Sendable, Hashable, CustomStringConvertible {
    package let description: String

    package init(_ description: String) { self.description = description }
}

extension ControllerState {
    /// Gives an order. It is published after it was stored.
    package mutating func order(
        _ target: OrderTarget,
        session: UInt64?,
        reason: String,
        now: Double
    ) throws(FleetRefusal) -> ControllerRecord {
        guard reason.unicodeScalars.count <= FleetOrder.longestReason else {
            throw FleetRefusal("the reason has more than \(FleetOrder.longestReason) characters; shorten it")
        }
        // JSON has no other whole numbers: devices would not understand the order.
        guard session.map({ $0 < 1 << 53 }) ?? true else {
            throw FleetRefusal("no session has that number; see “fleet devices”")
        }
        let names = try resolve(target)
        // Also above what devices have seen: of two databases one may have been lost.
        let seen = devices.values.lazy.compactMap(\.report).map { max($0.seen.all, $0.seen.own) }
            .filter { $0 < Self.plausibleNumber }.max()
        let number = max(highest, seen ?? 0) + 1
        // What is not settled is asked again by the new order, which takes its place; of each device what it was asked itself, and nothing of others.
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
        // Where the server has refused the order before on this topic, it is not news when it refuses this one.
        sendingAgain.hasten(now)
        revision += 1
        return .order(recorded, shortened: shortenOrders(now))
    }

    /// How many orders the controller can show.
    package static let mostOrders = 1000
    /// How many devices these name together. The last order may name all that there are, and so may those before it together for which a device still
    /// waits: it waits for the newest of its own.
    package static let mostNames = 2 * mostDevices

    /// Takes the names out of the oldest orders, as many as there are too many. Of devices that have done what was ordered, or have a later order,
    /// the order then knows how many were in which state; those that still wait for this order stay named.
    ///
    /// - Returns: the orders that were changed.
    private mutating func shortenOrders(_ now: Double) -> [RecordedOrder] {
        var count = orders.reduce(0) { $0 + $1.nameCount }
        var shortened: [RecordedOrder] = []
        for index in orders.indices.dropLast() where count > mostNames {
            guard case .devices(let names) = orders[index].target else { continue }
            let number = orders[index].number
            var kept: [String] = []
            for name in names {
                // Who was taken off the list counts no more, also not as a number.
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

    /// The same names as the keys of ``devices`` have them, so that a text is in memory once.
    func own(_ names: [String]) -> [String] {
        names.map { name in devices.index(forKey: name).map { devices[$0].key } ?? name }
    }

    /// - Returns: the devices; `nil` for all.
    private func resolve(_ target: OrderTarget) throws(FleetRefusal) -> [String]? {
        switch target {
        case .all:
            // Nobody would be waited for, and everybody would seem done.
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

    /// The session that a new order is about, where `old` may not be settled at these devices: none wins, else the highest.
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

    /// The order of this number.
    package func order(_ number: UInt64) -> RecordedOrder? { orders.last { $0.number == number } }
}
