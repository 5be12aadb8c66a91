/// A change that must be on the disk before it takes effect.
package enum ControllerRecord: Sendable, Hashable {
    /// A new order, and older orders that now name fewer devices.
    case order(RecordedOrder, shortened: [RecordedOrder])
    /// Devices that were listed or removed from the list.
    case listing([String])
}

/// The state machine of a fleet's controller: its orders and the devices' progress.
package struct ControllerState: Sendable {
    /// The interval of heartbeats, in seconds.
    package static let heartbeatInterval = 60.0
    /// The shortest interval between publications of the order for all devices, in seconds.
    static let repetition = 10.0
    /// The most devices, listed and unlisted together. Messages of further devices are ignored.
    package static let mostDevices = 250_000
    /// The seconds by which a correct clock may be off.
    static let clockTolerance = 60.0
    /// The controller ignores order numbers in reports from here on, as a mistake or an attack.
    static let plausibleNumber: UInt64 = 1 << 52

    package internal(set) var devices: [String: FleetDevice] = [:]
    /// The names in ``devices``, sorted.
    package private(set) var names: [String] = []
    package private(set) var listedCount: Int
    /// The newest last, including those from before a restart.
    package internal(set) var orders: [RecordedOrder] = []
    /// The most names in all ``orders`` together; lower in tests.
    package var mostNames = Self.mostNames
    package internal(set) var desired: FleetOrder?
    /// The highest number issued.
    package internal(set) var highest: UInt64
    package private(set) var isConnected = false
    /// The number of invalid messages, and below of reports older than the known ones.
    package private(set) var foreignCount: UInt64 = 0
    package private(set) var oldCount: UInt64 = 0
    /// Grows with each change.
    package internal(set) var revision: UInt64 = 1
    /// The revision at which a device was last forgotten.
    package private(set) var forgottenAt: UInt64 = 0
    /// Devices whose reports are not stored yet.
    private var unstored: Set<String> = []
    /// Whether the order for all devices must be published; below, the devices whose own order must be.
    var mustPublishAll = false
    var unpublished: Set<String> = []
    private var publishedAllAt: Double?
    private var heartbeatAt: Double?
    /// The schedules for requesting lost reports and lost presences again.
    var askingForReports = AskingAgain()
    var askingForPresence = AskingAgain()
    /// The topics that the server rejected, with its reasons.
    var refusals: [FleetTopic: String] = [:]
    var sendingAgain = AskingAgain(first: Self.firstRepetition)

    /// - Parameter number: the highest number issued; in a new database the seconds of the clock.
    package init(highest number: UInt64, orders: [RecordedOrder] = [], devices: [String: FleetDevice] = [:]) {
        highest = number
        self.orders = orders
        self.devices = devices
        names = devices.keys.sorted()
        listedCount = devices.values.count(where: \.isListed)
        desired = orders.last { $0.names == nil }?.order
        for index in orders.indices { self.orders[index].names = orders[index].names.map(own) }
    }

    // MARK: Connection

    /// Handles the server's acceptance. The server may have lost all messages.
    package mutating func connected() {
        isConnected = true
        revision += 1
        // Presences may have changed since, and a server that lost its data sends none.
        for name in names where devices[name]?.isOnline != nil {
            devices[name]?.isOnline = nil
            devices[name]?.awaySince = nil
            devices[name]?.changedAt = revision
        }
        mustPublishAll = desired != nil
        unpublished = Set(devices.filter { $0.value.desired != nil }.keys)
        heartbeatAt = nil
        askingForReports = AskingAgain()
        askingForPresence = AskingAgain()
        // All rejected messages are published again.
        refusals = [:]
    }

    package mutating func disconnected() {
        isConnected = false
        revision += 1
    }

    /// Returns the next message to publish; `nil` if there is none.
    package mutating func nextMessage(now: Double) -> (FleetTopic, FleetMessage)? {
        guard isConnected else { return nil }
        sendRefusedAgain(now)
        if mustPublishAll, let desired {
            mustPublishAll = false
            publishedAllAt = now
            return (.allDesired, .desired(desired))
        }
        // `abs` covers a clock that was set back.
        if heartbeatAt.map({ abs(now - $0) >= Self.heartbeatInterval }) ?? true {
            heartbeatAt = now
            return (.heartbeat, .heartbeat(highest: desired?.number ?? 0))
        }
        while let name = unpublished.popFirst() {
            if let order = devices[name]?.desired { return (.desired(device: name), .desired(order)) }
        }
        return nil
    }

    /// Queues the order on a topic.
    mutating func mustPublish(_ topic: FleetTopic) {
        if topic == .allDesired { mustPublishAll = true }
        if case .desired(let device) = topic { unpublished.insert(device) }
    }

    /// Queues a message again that could not be published.
    package mutating func notPublished(_ topic: FleetTopic) {
        if topic == .heartbeat { heartbeatAt = nil } else { mustPublish(topic) }
    }

    // MARK: Devices

    /// Handles a device's report or presence. `sent` is the time in the message; `nil` for a retained one.
    package mutating func received(_ topic: FleetTopic, _ message: FleetMessage, sent: Double?, now: Double) {
        switch (topic, message) {
        case (.reported(let name), .reported(let report)): take(report, of: name, sent: sent, now: now)
        case (.presence(let name), .presence(let isOnline)):
            guard var device = known(name), device.isOnline != isOnline else { return }
            device.isOnline = isOnline
            device.awaySince = isOnline ? nil : now
            change(name, device)
        default: foreign()
        }
    }

    /// Counts an invalid message.
    package mutating func foreign() {
        foreignCount += 1
        revision += 1
    }

    /// Returns the device, or a new unlisted one; `nil` if there are too many.
    private mutating func known(_ name: String) -> FleetDevice? {
        if let device = devices[name] { return device }
        guard devices.count < Self.mostDevices else {
            foreign()
            return nil
        }
        return FleetDevice()
    }

    private mutating func change(_ name: String, _ device: FleetDevice) {
        revision += 1
        var device = device
        device.changedAt = revision
        guard devices.updateValue(device, forKey: name) == nil else { return }
        names.insert(name, at: place(after: name))
    }

    /// The index of the first name after this one.
    package func place(after name: String) -> Int { names.place { $0 <= name } }

    private mutating func take(_ report: DeviceReport, of name: String, sent: Double?, now: Double) {
        guard var device = known(name) else { return }
        // The server may have retained an old report or lost a newer one.
        guard device.counts(report, sent: sent, now: now) else {
            if report.sequence != device.report?.sequence { oldCount += 1 }
            return
        }
        // The clock was corrected, so its earlier numbers are obsolete.
        if let last = device.report, report.sequence < last.sequence {
            device.leftBehind = max(device.leftBehind, last.sequence)
        }
        if device.report?.rounds != report.rounds { device.unchangedSince = now }
        device.report = report
        device.reportedAt = now
        // The device is connected after all. The server will be asked for its presence.
        if sent != nil, device.isOnline == false { (device.isOnline, device.awaySince) = (nil, nil) }
        device.clockOffset = sent.flatMap { abs($0 - now) > Self.clockTolerance ? $0 - now : nil }
        change(name, device)
        unstored.insert(name)
        // A device that has not seen the order may have been away, or the server has lost the order.
        if let order = device.desired, report.seen.own < order.number { unpublished.insert(name) }
        if let desired, report.seen.all < desired.number,
            publishedAllAt.map({ abs(now - $0) >= Self.repetition }) ?? true
        {
            mustPublishAll = true
        }
    }

    /// Removes and returns some devices whose reports must be stored; empty if there are none.
    package mutating func takeUnstored(atMost count: Int) -> [(String, FleetDevice)] {
        let names = unstored.prefix(count)
        unstored.subtract(names)
        return names.compactMap { name in devices[name].map { (name, $0) } }
    }

    /// Lists devices. Without groups it removes them from the list, which also forgets their reports.
    package mutating func list(_ names: [String], groups: [String]?) throws(FleetRefusal) -> ControllerRecord {
        if let wrong = (names + (groups ?? [])).first(where: { !FleetTopics.isName($0) }) {
            throw FleetRefusal("\(wrong) is no name; names have up to 64 small letters, digits and dashes")
        }
        revision += 1
        for name in names {
            if let groups {
                guard devices[name] != nil || devices.count < Self.mostDevices else {
                    throw FleetRefusal("there are \(Self.mostDevices) devices already; remove some first")
                }
                if devices[name]?.isListed != true { listedCount += 1 }
                devices[name, default: FleetDevice()].isListed = true
                devices[name]?.groups = groups
                devices[name]?.changedAt = revision
            } else {
                guard let device = devices.removeValue(forKey: name) else {
                    throw FleetRefusal("\(name) is not in the list; see “fleet devices”")
                }
                if device.isListed { listedCount -= 1 }
                refusals[.desired(device: name)] = nil
                forgottenAt = revision
            }
        }
        self.names = devices.keys.sorted()
        return .listing(names)
    }
}

package struct RecordedOrder: Sendable, Hashable {
    package let order: FleetOrder
    /// The target devices, sorted and unique, without devices that are only counted; `nil` for all devices.
    package internal(set) var names: [String]?
    /// Target devices that are no longer named, to save memory and disk, as they were at that time.
    package var counted: OrderCounts
    /// Seconds since 1970.
    package let at: Double

    /// - Parameter names: in any order; `nil` for all devices.
    package init(order: FleetOrder, names: [String]?, counted: OrderCounts = OrderCounts(), at: Double) {
        self.order = order
        self.names = names?.sorted()
        self.counted = counted
        self.at = at
    }

    package var number: UInt64 { order.number }
    package var scope: OrderScope { names == nil ? .all : .own }

    /// Whether the order waits for this device. It never waits for an unlisted one (FL-14).
    package func isFor(_ name: String, _ device: FleetDevice) -> Bool {
        guard device.isListed else { return false }
        guard let names else { return true }
        let place = names.place { $0 < name }
        return place < names.count && names[place] == name
    }

    /// The number of target devices; `nil` for all.
    package var count: UInt64? { names.map { UInt64($0.count) + counted.total } }
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

/// The reason why a file, a request or a received message is rejected. For an administrator it contains the remedy; for
/// a message it describes only the form, not the content.
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
        // A new order replaces a pending one and must cover its session. For a device only its own order counts.
        let own = names?.map { (name: $0, session: merged(session, devices[$0]?.desired, [$0], .own, now)) }
        let asked = names == nil ? merged(session, desired, Array(devices.keys), .all, now) : session
        let order = FleetOrder(number: number, session: asked, reason: reason)
        highest = number
        let recorded = RecordedOrder(order: order, names: names, at: now)
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

    /// Removes names from the oldest orders until few enough are left, and returns these orders. Devices that are done
    /// or have a later order become numbers in the order's counts. Devices that still wait for this order stay named.
    private mutating func shortenOrders(_ now: Double) -> [RecordedOrder] {
        var count = orders.reduce(0) { $0 + ($1.names?.count ?? 0) }
        var shortened: [RecordedOrder] = []
        for index in orders.indices.dropLast() where count > mostNames {
            guard let names = orders[index].names else { continue }
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
            orders[index].names = kept
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

    /// The session of an order that replaces `old`, if that may be pending: `nil` takes precedence, then the higher.
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
