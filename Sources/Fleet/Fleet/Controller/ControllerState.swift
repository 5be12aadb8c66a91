/// An order as the controller has given it.
package struct RecordedOrder: Sendable, Hashable {
    package enum Target: Sendable, Hashable {
        case all
        /// The devices that were meant when it was given.
        case devices(Set<String>)
    }

    package let order: FleetOrder
    package let target: Target
    /// Seconds since 1970.
    package let at: Double

    package init(order: FleetOrder, target: Target, at: Double) {
        self.order = order
        self.target = target
        self.at = at
    }

    package var number: UInt64 { order.number }
    package var scope: OrderScope { target == .all ? .all : .own }

    /// Whether it waits for this device (FL-14).
    package func isFor(_ name: String, _ device: FleetDevice) -> Bool {
        switch target {
        case .all: device.isListed
        case .devices(let names): names.contains(name)
        }
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

/// What has to be on the disk before anything else happens.
package enum ControllerRecord: Sendable, Hashable {
    case order(RecordedOrder)
    /// Devices that were listed or taken off the list.
    case listing([String])
}

/// The controller of a fleet, as a value: who shall be signed out, and who has said that it is done.
package struct ControllerState: Sendable {
    /// How often everybody hears that the controller is there, in seconds.
    package static let heartbeatInterval = 60.0
    /// The least time between two times that an order for everybody is published, in seconds.
    static let repetition = 10.0
    /// Listed devices and strangers together; of more the controller hears nothing.
    package static let mostDevices = 250_000
    /// A clock that is off by so many seconds is wrong.
    static let clockTolerance = 60.0
    /// Numbers from here on are somebody's mistake or attack: the controller never follows them.
    static let plausibleNumber: UInt64 = 1 << 52

    package private(set) var devices: [String: FleetDevice] = [:]
    /// Those of ``devices``, sorted.
    package private(set) var names: [String] = []
    /// How many of ``devices`` an administrator has listed.
    package private(set) var listedCount: Int
    /// The newest last. Those of before a restart are there, too.
    package private(set) var orders: [RecordedOrder] = []
    package private(set) var desired: FleetOrder?
    /// The highest number that was given.
    package private(set) var highest: UInt64
    package private(set) var isConnected = false
    /// Messages that meant nothing, and reports that were older than what was known.
    package private(set) var foreignCount: UInt64 = 0
    package private(set) var oldCount: UInt64 = 0
    /// Grows with each change.
    package private(set) var revision: UInt64 = 1
    /// The revision as of the last time that a device was forgotten.
    package private(set) var forgottenAt: UInt64 = 0
    /// Devices whose reports are not on the disk.
    private var unstored: Set<String> = []
    /// What the server has to be told: the order for everybody, and those of devices.
    private var mustPublishAll = false
    private var unpublished: Set<String> = []
    private var publishedAllAt: Double?
    private var heartbeatAt: Double?
    var askingAgain = AskingAgain()

    /// A controller that starts.
    ///
    /// - Parameter number: the highest number that was given; in a new database the seconds of the clock.
    package init(highest number: UInt64, orders: [RecordedOrder] = [], devices: [String: FleetDevice] = [:]) {
        highest = number
        self.orders = orders
        self.devices = devices
        names = devices.keys.sorted()
        listedCount = devices.values.count(where: \.isListed)
        desired = orders.last { $0.target == .all }?.order
    }

    // MARK: Connection

    /// The server has accepted the controller. It may have forgotten everything.
    package mutating func connected() {
        isConnected = true
        revision += 1
        mustPublishAll = desired != nil
        unpublished = Set(devices.filter { $0.value.desired != nil }.keys)
        heartbeatAt = nil
        askingAgain = AskingAgain()
    }

    package mutating func disconnected() {
        isConnected = false
        revision += 1
    }

    /// What is to be published next; `nil` where nothing is.
    package mutating func nextMessage(now: Double) -> (FleetTopic, FleetMessage)? {
        guard isConnected else { return nil }
        if mustPublishAll, let desired {
            mustPublishAll = false
            publishedAllAt = now
            return (.allDesired, .desired(desired))
        }
        // Also where the clock was set back.
        if heartbeatAt.map({ abs(now - $0) >= Self.heartbeatInterval }) ?? true {
            heartbeatAt = now
            return (.heartbeat, .heartbeat(highest: desired?.number ?? 0))
        }
        while let name = unpublished.popFirst() {
            if let order = devices[name]?.desired { return (.desired(device: name), .desired(order)) }
        }
        return nil
    }

    /// The server did not take it.
    package mutating func notPublished(_ topic: FleetTopic) {
        switch topic {
        case .allDesired: mustPublishAll = true
        case .heartbeat: heartbeatAt = nil
        case .desired(let device): unpublished.insert(device)
        case .reported, .presence: break
        }
    }

    // MARK: Devices

    /// A device's report or presence has arrived.
    ///
    /// - Parameter sent: the time that the message names; `nil` for one that the server had kept.
    package mutating func received(_ topic: FleetTopic, _ message: FleetMessage, sent: Double?, now: Double) {
        switch (topic, message) {
        case (.reported(let name), .reported(let report)):
            guard let entry = known(name) else { return }
            take(report, of: name, entry, sent: sent, now: now)
        case (.presence(let name), .presence(let isOnline)):
            guard var device = known(name), device.isOnline != isOnline else { return }
            device.isOnline = isOnline
            change(name, device)
        default: foreign()
        }
    }

    /// Something arrived that means nothing.
    package mutating func foreign() {
        foreignCount += 1
        revision += 1
    }

    /// The device, also one that nobody has listed; `nil` where there are too many.
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

    /// Where the names begin that come after this one.
    package func place(after name: String) -> Int {
        var range = names.startIndex..<names.endIndex
        while !range.isEmpty {
            let middle = range.lowerBound + range.count / 2
            range = names[middle] > name ? range.lowerBound..<middle : middle + 1..<range.upperBound
        }
        return range.lowerBound
    }

    private mutating func take(
        _ report: DeviceReport,
        of name: String,
        _ entry: FleetDevice,
        sent: Double?,
        now: Double
    ) {
        var device = entry
        // The server may have kept an old one, or lost a newer one.
        if let last = device.report, report.sequence <= last.sequence {
            if report.sequence < last.sequence { oldCount += 1 }
            return
        }
        if device.report?.rounds != report.rounds { device.unchangedSince = now }
        device.report = report
        device.reportedAt = now
        device.clockOffset = sent.flatMap { abs($0 - now) > Self.clockTolerance ? $0 - now : nil }
        change(name, device)
        unstored.insert(name)
        // Who has not seen it may have been away, or the server has lost it.
        if let order = device.desired, report.seen.own < order.number { unpublished.insert(name) }
        if let desired, report.seen.all < desired.number,
            publishedAllAt.map({ abs(now - $0) >= Self.repetition }) ?? true
        {
            mustPublishAll = true
        }
    }

    /// Some devices whose reports are to be stored, with what is known of them now; empty where there are none.
    package mutating func takeUnstored(atMost count: Int) -> [(String, FleetDevice)] {
        let names = unstored.prefix(count)
        unstored.subtract(names)
        return names.compactMap { name in devices[name].map { (name, $0) } }
    }

    /// Lists devices, or takes them off the list.
    ///
    /// - Parameter groups: `nil` to take them off; with that the controller forgets what they have reported.
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
                forgottenAt = revision
            }
        }
        self.names = devices.keys.sorted()
        return .listing(names)
    }
}

// MARK: - Orders

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
        var newest = session
        // What is not settled is asked again by the new order, which takes its place.
        if let names {
            for name in names { newest = merged(newest, devices[name]?.desired, [name], .own, now) }
        } else {
            newest = merged(newest, desired, Array(devices.keys), .all, now)
        }
        let order = FleetOrder(number: number, session: newest, reason: reason)
        highest = number
        let recorded = RecordedOrder(order: order, target: names.map { .devices(Set($0)) } ?? .all, at: now)
        orders.append(recorded)
        if orders.count > Self.mostOrders { orders.removeFirst() }
        if let names {
            for name in names {
                devices[name]?.desired = order
                unpublished.insert(name)
            }
        } else {
            desired = order
            mustPublishAll = true
        }
        askingAgain.begin(now)
        revision += 1
        return .order(recorded)
    }

    /// How many orders the controller can show.
    package static let mostOrders = 1000

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
            return names
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
