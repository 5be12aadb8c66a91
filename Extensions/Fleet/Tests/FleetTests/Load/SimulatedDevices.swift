import Basics
import DBus
package import Fleet
import Glibc
package import MQTTClient
import Synchronization

/// Devices that share one connection to the server, with real agents and simulated brokers and apps.
package final class SimulatedDevices: Sendable {
    private struct Device {
        var agent: AgentState
        var epoch: UInt64
        var isSignedIn: Bool
        /// The session whose cleanup is pending, and when the apps finish it.
        var debt: (session: UInt64, until: Double)?
        var isAway = false
        /// The uptime at which the agent wants a tick.
        var wakeAt: Double?
        /// Whether it has just subscribed and receives retained messages.
        var isSubscribing = false
        /// The session that was open when the order was issued, until it is over and clean.
        var open: UInt64?
        /// The highest order that it has reported as seen.
        var said: UInt64 = 0

        /// The broker's view.
        var view: DeviceView {
            let owing = [DeviceReport.Round.Debt(app: "notes", progress: "begun")]
            let rounds = debt.map { [DeviceReport.Round(session: $0.session, finished: 0, owing: owing)] }
            return DeviceView(mode: "shared", epoch: epoch, isSignedIn: isSignedIn, rounds: rounds ?? [])
        }
    }

    private struct State {
        var devices: [Device]
        var random: Seeded
        var isConnected = false
        var mustSubscribe = false
        var problem: MQTTError?
        var reported = 0
        /// The reports to publish.
        var reports: [(Int, DeviceReport)] = []

        /// Passes an event to a device's agent, and handles its effects until none is left.
        mutating func tell(_ index: Int, _ event: AgentEvent, _ now: Moment) {
            // All devices subscribe together at the beginning of a connection, and each broker reports its view.
            let isConnection = event == .connected
            var events = isConnection ? [.device(devices[index].view), event] : [event]
            defer { devices[index].wakeAt = devices[index].agent.wake(now: now) }
            while let event = events.popLast() {
                for effect in devices[index].agent.handle(event, now: now) {
                    switch effect {
                    case .subscribe:
                        devices[index].isSubscribing = true
                        if !isConnection { mustSubscribe = true }
                    case .publish(let report):
                        reports.append((index, report))
                        devices[index].said = max(devices[index].said, report.seen.all)
                    case .askDevice: events.append(.device(devices[index].view))
                    case .signOut(let session, _):
                        let isOpen = devices[index].isSignedIn && devices[index].epoch == session
                        if isOpen {
                            devices[index].debt = (session, now.uptime + Double(random.below(3)))
                            devices[index].isSignedIn = false
                            devices[index].epoch += 1
                        }
                        events.append(.signOutAnswered(isOpen ? .ended : .overAlready))
                    case .store, .publishPresence, .note: break
                    }
                }
            }
        }

        /// Connects or disconnects a device. Its broker keeps running meanwhile.
        mutating func turn(_ index: Int, _ now: Moment) {
            devices[index].isAway.toggle()
            guard isConnected else { return }
            tell(index, devices[index].isAway ? .disconnected : .connected, now)
            if !devices[index].isAway { mustSubscribe = true }
        }
    }

    private let names: [String]
    private let state: Locked<State>
    private let client = Locked<MQTTClient?>(nil)
    private let topics: FleetTopics
    /// The subscriptions of the connection. Only a single device also subscribes to its own order.
    private let subscriptions: [String]

    package static func name(_ index: Int) -> String { "d-\(index)" }

    /// - Parameter away: the percentage of devices that are offline at first.
    package init(_ range: Range<Int>, topics: FleetTopics, seed: UInt64, away: Int = 10) {
        self.topics = topics
        names = range.map(Self.name)
        subscriptions =
            range.count == 1 ? topics.forDevice(names[0]) : [topics.text(.heartbeat), topics.text(.allDesired)]
        var random = Seeded(state: seed)
        let now = Self.now
        let devices = range.map { _ in
            Device(
                agent: AgentState(policy: .init(), memory: AgentMemory(), now: now),
                epoch: 7,
                isSignedIn: random.chance(70),
                isAway: random.chance(away)
            )
        }
        state = Locked(State(devices: devices, random: random))
    }

    package func connect(_ options: MQTTOptions) throws {
        var options = options
        options.capacity = (1 << 20, 1 << 30)
        // Inside the lock, so that the first event finds the client.
        try client.withLock { [options] client throws(MQTTError) in
            client = try MQTTClient(options) { [weak self] in self?.take($0) }
        }
    }

    private static var now: Moment {
        var (up, wall) = (timespec(), timespec())
        clock_gettime(CLOCK_BOOTTIME, &up)
        clock_gettime(CLOCK_REALTIME, &wall)
        return Moment(uptime: Double(up.tv_sec) + Double(up.tv_nsec) / 1e9, wall: Double(wall.tv_sec), boot: "a")
    }

    private func take(_ event: MQTTEvent) {
        switch event {
        case .connected:
            try? client.withLock { $0 }?.subscribe(to: subscriptions)
            tellAll(.connected) { $0.isConnected = true }
        case .lost(let error):
            tellAll(.disconnected) {
                $0.isConnected = false
                $0.problem = error
            }
        case .message(let message):
            guard let topic = topics.topic(message.topic),
                let content = try? FleetEvent(parsing: message.payload).message
            else { return }
            switch (topic, content) {
            // On a shared connection, retained messages go only to devices that have just subscribed.
            case (.allDesired, .desired(let order)): tellAll(.desired(.all, order), isKept: message.isRetained)
            case (.desired, .desired(let order)): tellAll(.desired(.own, order))
            case (.heartbeat, .heartbeat(let highest)): tellAll(.heartbeat(highest: highest))
            default: break
            }
        case .refused(let error): state.withLock { $0.problem = error }
        case .hasRoom, .accepted: break
        }
    }

    private func tellAll(
        _ event: AgentEvent,
        isKept: Bool = false,
        _ change: @Sendable (inout State) -> Void = { _ in }
    ) {
        update { state, now in
            change(&state)
            for index in state.devices.indices where !state.devices[index].isAway {
                if isKept {
                    guard state.devices[index].isSubscribing else { continue }
                    state.devices[index].isSubscribing = false
                }
                state.tell(index, event, now)
            }
        }
    }

    /// Changes the state, and publishes the reports that follow.
    private func update(_ change: @Sendable (inout State, Moment) -> Void) {
        let reports = state.withLock { state in
            change(&state, Self.now)
            state.reported += state.reports.count
            defer { state.reports = [] }
            return state.reports
        }
        guard !reports.isEmpty, let client = client.withLock({ $0 }) else { return }
        for (index, report) in reports {
            let event = FleetEvent(.reported(report), source: names[index], identifier: "\(report.sequence)", time: nil)
            let topic = topics.text(.reported(device: names[index]))
            try? client.publish(MQTTMessage(topic: topic, payload: event.bytes, isRetained: true))
        }
    }

    // MARK: What the test does

    /// Advances the time: apps finish, and with `flapping` one device in a hundred goes online or offline.
    package func tick(flapping: Bool) {
        update { state, now in
            for index in state.devices.indices {
                if let debt = state.devices[index].debt, debt.until <= now.uptime {
                    state.devices[index].debt = nil
                    if state.devices[index].open == debt.session { state.devices[index].open = nil }
                    if !state.devices[index].isAway { state.tell(index, .device(state.devices[index].view), now) }
                }
                if flapping, state.random.below(100) == 0 { state.turn(index, now) }
                if !state.devices[index].isAway, let time = state.devices[index].wakeAt, time <= now.uptime {
                    state.tell(index, .tick, now)
                }
            }
        }
        let mustSubscribe = state.withLock { state in
            defer { state.mustSubscribe = false }
            return state.mustSubscribe && state.isConnected
        }
        if mustSubscribe { try? client.withLock { $0 }?.subscribe(to: [topics.text(.allDesired)]) }
    }

    package func bringBack() {
        update { state, now in
            for index in state.devices.indices where state.devices[index].isAway { state.turn(index, now) }
        }
    }

    /// Marks the sessions that are open now: they must end cleanly.
    package func begin() {
        state.withLock { state in
            for index in state.devices.indices {
                state.devices[index].open = state.devices[index].isSignedIn ? state.devices[index].epoch : nil
            }
        }
    }

    /// Signs in a user on each device, and passes each broker's view to its agent.
    package func signIn() {
        update { state, now in
            for index in state.devices.indices {
                if !state.devices[index].isSignedIn {
                    state.devices[index].epoch += 1
                    state.devices[index].isSignedIn = true
                }
                if !state.devices[index].isAway { state.tell(index, .device(state.devices[index].view), now) }
            }
        }
    }

    /// The number of devices whose marked session is over and clean.
    package var done: Int { state.withLock { $0.devices.count { $0.open == nil } } }
    /// For each device of the group, whether its marked session is over and clean and it has reported this order as
    /// seen.
    package func done(_ order: UInt64) -> [Bool] {
        state.withLock { $0.devices.map { $0.open == nil && $0.said >= order } }
    }
    package var isConnected: Bool { state.withLock { $0.isConnected } }
    package var reported: Int { state.withLock { $0.reported } }
    /// The last connection failure or rejection by the server.
    package var problem: MQTTError? { state.withLock { $0.problem } }
}

/// A seeded random number generator (SplitMix64).
package struct Seeded: RandomNumberGenerator, Sendable {
    private var state: UInt64

    package init(state: UInt64) { self.state = state }

    package mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var z = state
        z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
        z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
        return z ^ (z >> 31)
    }

    package mutating func below(_ limit: Int) -> Int { Int.random(in: 0..<limit, using: &self) }
    package mutating func chance(_ percent: Int) -> Bool { below(100) < percent }
    package mutating func shuffle<Element>(_ elements: inout [Element]) { elements.shuffle(using: &self) }
}
