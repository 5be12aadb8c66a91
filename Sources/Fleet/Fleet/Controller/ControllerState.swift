/// What has to be on the disk before anything else happens.
package enum ControllerRecord: Sendable, Hashable {
    /// A new order, and older ones of which fewer devices are named from now on.
    case order(RecordedOrder, shortened: [RecordedOrder])
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

    package internal(set) var devices: [String: FleetDevice] = [:]
    /// Those of ``devices``, sorted.
    package private(set) var names: [String] = []
    /// How many of ``devices`` an administrator has listed.
    package private(set) var listedCount: Int
    /// The newest last. Those of before a restart are there, too.
    package internal(set) var orders: [RecordedOrder] = []
    /// How many devices ``orders`` name together; fewer in tests.
    package var mostNames = Self.mostNames
    package internal(set) var desired: FleetOrder?
    /// The highest number that was given.
    package internal(set) var highest: UInt64
    package private(set) var isConnected = false
    /// Messages that meant nothing, and reports that were older than what was known.
    package private(set) var foreignCount: UInt64 = 0
    package private(set) var oldCount: UInt64 = 0
    /// Grows with each change.
    package internal(set) var revision: UInt64 = 1
    /// The revision as of the last time that a device was forgotten.
    package private(set) var forgottenAt: UInt64 = 0
    /// Devices whose reports are not on the disk.
    private var unstored: Set<String> = []
    /// What the server has to be told: the order for everybody, and those of devices.
    var mustPublishAll = false
    var unpublished: Set<String> = []
    private var publishedAllAt: Double?
    private var heartbeatAt: Double?
    /// When lost reports are asked for again, and lost presences.
    var askingForReports = AskingAgain()
    var askingForPresence = AskingAgain()
    /// What the server did not take, with its reason.
    var refusals: [FleetTopic: String] = [:]
    var sendingAgain = AskingAgain(first: Self.firstRepetition)

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
        for index in self.orders.indices {
            if case .devices(let names) = orders[index].target { self.orders[index].target = .devices(own(names)) }
        }
    }

    // MARK: Connection

    /// The server has accepted the controller. It may have forgotten everything.
    package mutating func connected() {
        isConnected = true
        revision += 1
        // What was said of connections before may have changed, and a server that has lost its data says nothing of it.
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
        // All of it is published anew.
        refusals = [:]
    }

    package mutating func disconnected() {
        isConnected = false
        revision += 1
    }

    /// What is to be published next; `nil` where nothing is.
    package mutating func nextMessage(now: Double) -> (FleetTopic, FleetMessage)? {
        guard isConnected else { return nil }
        sendRefusedAgain(now)
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
            device.awaySince = isOnline ? nil : now
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
    package func place(after name: String) -> Int { names.place { $0 <= name } }

    private mutating func take(
        _ report: DeviceReport,
        of name: String,
        _ entry: FleetDevice,
        sent: Double?,
        now: Double
    ) {
        var device = entry
        // The server may have kept an old one, or lost a newer one.
        guard device.counts(report, sent: sent, now: now) else {
            if report.sequence != device.report?.sequence { oldCount += 1 }
            return
        }
        // The clock was put right: what it numbered before is old from now on.
        if let last = device.report, report.sequence < last.sequence {
            device.leftBehind = max(device.leftBehind, last.sequence)
        }
        if device.report?.rounds != report.rounds { device.unchangedSince = now }
        device.report = report
        device.reportedAt = now
        // It is connected after all; whether it still is, the server is asked.
        if sent != nil, device.isOnline == false { (device.isOnline, device.awaySince) = (nil, nil) }
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
                refusals[.desired(device: name)] = nil
                forgottenAt = revision
            }
        }
        self.names = devices.keys.sorted()
        return .listing(names)
    }
}
