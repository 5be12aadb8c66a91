import Fleet
import FleetLoad

/// A fleet in memory: the state machines of agents and controller, a server that repeats and loses messages, and
/// devices with slow apps. Each seed gives one reproducible history.
struct MemoryFleet {
    /// A device with its true state, which the checks use instead of reports.
    struct Device {
        struct Broker {
            var epoch: UInt64 = 1
            var isSignedIn = false
            /// The ended sessions with pending cleanups, and when the apps finish them.
            var debts: [UInt64: Double] = [:]
            var ended: [UInt64] = []
        }

        var agent: AgentState
        var disk = AgentMemory()
        var broker = Broker()
        /// The broker's stored state, and when the present state is stored.
        var stored = Broker()
        var storedAt = 0.0
        var isAway = false
        var isConnected = false
        /// Requests and responses in flight.
        var isAsked = true
        var signingOut: (session: UInt64, run: Int)?
        var knownView: DeviceView?
        /// The number of the agent's starts. Responses to an earlier run are lost.
        var run = 0

        /// Stores the state now or at a later time.
        mutating func store(at time: Double, now: Double) {
            storedAt = time
            if time <= now { stored = broker }
        }
    }

    struct Engine {
        var kept: [FleetTopic: FleetMessage] = [:]
        /// Messages in flight to devices and to the controller.
        var toDevices: [(device: Int, event: AgentEvent)] = []
        var toController: [(FleetTopic, FleetMessage)] = []
    }

    var devices: [Device] = []
    var controller: ControllerState
    var engine = Engine()
    var isControllerConnected = false
    /// Whether agents are killed between two effects and disks stall.
    var isFaulty = false
    var now = 0.0
    var random: Seeded

    static func name(_ index: Int) -> String { "d-\(index)" }

    init(devices count: Int, seed: UInt64) {
        random = Seeded(state: seed)
        controller = ControllerState(highest: 1000)
        for index in 0..<count {
            devices.append(Device(agent: AgentState(policy: .init(), memory: AgentMemory(), now: .at(0))))
            _ = try? controller.list([Self.name(index)], groups: [])
        }
    }

    // MARK: Time

    /// Advances the time by a second. Devices, server and controller act in a random order.
    mutating func step() {
        now += 1
        for index in devices.indices { connectOrNot(index) }
        publish()
        deliver()
        for index in devices.indices {
            answer(index)
            tell(index, .tick)
        }
        deliver()
    }

    private mutating func connectOrNot(_ index: Int) {
        guard devices[index].isConnected == devices[index].isAway else { return }
        devices[index].isConnected = !devices[index].isAway
        if !devices[index].isAway { return tell(index, .connected) }
        engine.toDevices.removeAll { $0.device == index }
        tell(index, .disconnected)
    }

    private mutating func publish() {
        if !isControllerConnected {
            isControllerConnected = true
            controller.connected()
            for (topic, message) in engine.kept { engine.toController.append((topic, message)) }
        }
        while let (topic, message) = controller.nextMessage(now: now) {
            if topic != .heartbeat { engine.kept[topic] = message }
            for index in devices.indices where devices[index].isConnected { send(topic, message, to: index) }
        }
    }

    private mutating func send(_ topic: FleetTopic, _ message: FleetMessage, to index: Int) {
        let event: AgentEvent? =
            switch (topic, message) {
            case (.allDesired, .desired(let order)): .desired(.all, order)
            case (.desired(Self.name(index)), .desired(let order)): .desired(.own, order)
            case (.heartbeat, .heartbeat(let highest)): .heartbeat(highest: highest)
            default: nil
            }
        guard let event else { return }
        engine.toDevices.append((index, event))
        // Delivers twice now and then, as a server may.
        if random.chance(10) { engine.toDevices.append((index, event)) }
    }

    private mutating func deliver() {
        var messages = engine.toDevices
        engine.toDevices = []
        random.shuffle(&messages)
        for (index, event) in messages { tell(index, event) }
        let reports = engine.toController
        engine.toController = []
        for (topic, message) in reports { controller.received(topic, message, sent: nil, now: now) }
    }

    // MARK: A device

    mutating func tell(_ index: Int, _ event: AgentEvent) {
        for effect in devices[index].agent.handle(event, now: .at(now)) {
            if isFaulty, random.chance(1) { return killAgent(index) }
            switch effect {
            case .subscribe:
                for topic in [FleetTopic.allDesired, .desired(device: Self.name(index))] {
                    if let message = engine.kept[topic] { send(topic, message, to: index) }
                }
            case .publishPresence, .note: break
            case .publish(let report):
                let topic = FleetTopic.reported(device: Self.name(index))
                engine.kept[topic] = .reported(report)
                engine.toController.append((topic, .reported(report)))
                if random.chance(5) { engine.toController.append((topic, .reported(report))) }
            case .store(let memory): devices[index].disk = memory
            case .signOut(let session, _): devices[index].signingOut = (session, devices[index].run)
            case .askDevice: devices[index].isAsked = true
            }
        }
    }

    /// Lets the broker respond and the apps clean up.
    private mutating func answer(_ index: Int) {
        if devices[index].storedAt > 0, devices[index].storedAt <= now { devices[index].store(at: 0, now: now) }
        if let (session, run) = devices[index].signingOut {
            devices[index].signingOut = nil
            let isOpen = devices[index].broker.isSignedIn && devices[index].broker.epoch == session
            if isOpen { signOut(index) }
            let ended: AgentEvent.SignOutAnswer = devices[index].storedAt > 0 ? .endedUnstored : .ended
            if run == devices[index].run { tell(index, .signOutAnswered(isOpen ? ended : .overAlready)) }
        }
        devices[index].broker.debts = devices[index].broker.debts.filter { $0.value > now }
        let device = devices[index]
        let view = DeviceView(
            mode: "shared",
            epoch: device.broker.epoch,
            isSignedIn: device.broker.isSignedIn,
            rounds: device.broker.debts.keys.sorted().suffix(DeviceReport.mostRounds).map {
                .init(session: $0, finished: 1, owing: [.init(app: "notes", progress: "told")])
            },
            isStored: device.storedAt == 0
        )
        guard device.isAsked || view != device.knownView else { return }
        devices[index].isAsked = false
        devices[index].knownView = view
        tell(index, .device(view))
    }

    mutating func signIn(_ index: Int) {
        guard !devices[index].broker.isSignedIn else { return }
        devices[index].broker.epoch += 1
        devices[index].broker.isSignedIn = true
        // An app gets an account only after the state is stored.
        devices[index].store(at: 0, now: now)
    }

    mutating func signOut(_ index: Int) {
        let session = devices[index].broker.epoch
        guard devices[index].broker.isSignedIn else { return }
        devices[index].broker.debts[session] = now + Double(random.below(20))
        devices[index].broker.ended.append(session)
        devices[index].broker.isSignedIn = false
        devices[index].broker.epoch += 1
        devices[index].store(at: isFaulty && random.chance(30) ? now + Double(1 + random.below(5)) : 0, now: now)
    }

    // MARK: Faults

    /// Kills the agent between any two effects and starts it again.
    mutating func killAgent(_ index: Int) {
        devices[index].agent = AgentState(policy: .init(), memory: devices[index].disk, now: .at(now))
        devices[index].isConnected = false
        devices[index].isAsked = true
        devices[index].run += 1
        engine.toDevices.removeAll { $0.device == index }
    }

    /// Cuts the power: agent and broker keep only their stored state.
    mutating func cutPower(_ index: Int) {
        devices[index].broker = devices[index].stored
        (devices[index].storedAt, devices[index].signingOut, devices[index].knownView) = (0, nil, nil)
        killAgent(index)
    }

    /// Kills the server and loses all its data.
    mutating func loseEngine() {
        engine = Engine()
        isControllerConnected = false
        controller.disconnected()
        for index in devices.indices where devices[index].isConnected {
            devices[index].isConnected = false
            tell(index, .disconnected)
        }
    }

    /// Kills the controller: its disk has the orders and the list, but no reports.
    mutating func killController() {
        let listed = controller.devices.filter(\.value.isListed).mapValues { device in
            var known = FleetDevice()
            (known.isListed, known.desired) = (true, device.desired)
            return known
        }
        controller = ControllerState(highest: controller.highest, orders: controller.orders, devices: listed)
        isControllerConnected = false
    }

    mutating func order(_ target: OrderTarget) throws -> RecordedOrder { try controller.issue(target, now: now) }
}

extension DeviceReport.Round {
    /// A round with all its fields.
    init(
        session: UInt64,
        finished: UInt64,
        waived: UInt64 = 0,
        enforced: UInt64 = 0,
        owing: [Debt],
        more: UInt64 = 0,
        ended: Double? = nil,
        steps: [Step] = []
    ) {
        self.init(session: session, finished: finished, owing: owing)
        (self.waived, self.enforced, self.more) = (waived, enforced, more)
        (self.ended, self.steps) = (ended, steps)
    }
}
