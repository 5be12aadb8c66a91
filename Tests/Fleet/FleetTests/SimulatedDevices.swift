import DBusTransport
import Fleet
import FleetStage
import Foundation
import Glibc
import MQTTClient
import Synchronization

/// Some devices behind one connection to the server: real agents' decisions, and brokers and apps that are numbers.
final class SimulatedDevices: Sendable {
    private struct Device {
        var agent: AgentState
        var epoch: UInt64
        var isSignedIn: Bool
        /// When the apps are done with the session of this number.
        var debt: (session: UInt64, until: Double)?
        var isAway = false
        /// The session that was open when the order was given, as long as it is not over and clean.
        var open: UInt64?
    }

    private struct State {
        var devices: [Device]
        var random: Seeded
        var isConnected = false
        var mustSubscribe = false
    }

    private let names: [String]
    private let state: Locked<State>
    private let client = Locked<MQTTClient?>(nil)
    private let topics: FleetTopics

    init(_ range: Range<Int>, topics: FleetTopics, seed: UInt64) {
        self.topics = topics
        names = range.map { "d-\($0)" }
        var random = Seeded(state: seed)
        let devices = range.map { _ in
            Device(
                agent: AgentState(policy: .init(), memory: AgentMemory(), now: Self.now),
                epoch: 7,
                isSignedIn: random.chance(70),
                isAway: random.chance(10)
            )
        }
        state = Locked(State(devices: devices, random: random))
    }

    func connect(_ stage: FleetStage, _ identifier: String) throws {
        var options = MQTTOptions(
            host: "localhost",
            port: stage.port,
            clientIdentifier: identifier,
            certificates: stage.files("simulation")
        )
        options.firstDelay = .milliseconds(100)
        options.capacity = (1 << 20, 1 << 30)
        // Under the lock: the first event finds the client in its place.
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
            try? client.withLock { $0 }?.subscribe(to: [topics.text(.heartbeat), topics.text(.allDesired)])
            tellAll(.connected) { $0.isConnected = true }
        case .lost: tellAll(.disconnected) { $0.isConnected = false }
        case .message(let message):
            guard let content = try? FleetEvent(parsing: message.payload).message else { return }
            switch content {
            case .desired(let order): tellAll(.desired(.all, order))
            case .heartbeat(let highest): tellAll(.heartbeat(highest: highest))
            case .reported, .presence: break
            }
        case .refused, .hasRoom: break
        }
    }

    private func tellAll(_ event: AgentEvent, _ change: @Sendable (inout State) -> Void = { _ in }) {
        let reports = state.withLock { state in
            change(&state)
            var reports: [(Int, DeviceReport)] = []
            for index in state.devices.indices where !state.devices[index].isAway {
                Self.tell(index, event, &state, &reports)
            }
            return reports
        }
        publish(reports)
    }

    /// A device's agent, its broker and its apps, until nothing follows any more.
    private static func tell(
        _ index: Int,
        _ event: AgentEvent,
        _ state: inout State,
        _ reports: inout [(Int, DeviceReport)]
    ) {
        let now = Self.now
        var events = [event]
        while let event = events.popLast() {
            for effect in state.devices[index].agent.handle(event, now: now) {
                switch effect {
                case .subscribe: state.mustSubscribe = true
                case .publish(let report): reports.append((index, report))
                case .askDevice: events.append(.device(view(state.devices[index], now)))
                case .signOut(let session, _):
                    let isOpen = state.devices[index].isSignedIn && state.devices[index].epoch == session
                    if isOpen {
                        state.devices[index].debt = (session, now.uptime + Double(state.random.below(3)))
                        state.devices[index].isSignedIn = false
                        state.devices[index].epoch += 1
                    }
                    events.append(.signOutAnswered(isOpen ? .ended : .overAlready))
                case .store, .publishPresence, .note: break
                }
            }
        }
    }

    private static func view(_ device: Device, _ now: Moment) -> DeviceView {
        let rounds = device.debt.map { debt in
            [DeviceReport.Round(session: debt.session, finished: 0, owing: [.init(app: "notes", progress: "begun")])]
        }
        return DeviceView(mode: "shared", epoch: device.epoch, isSignedIn: device.isSignedIn, rounds: rounds ?? [])
    }

    private func publish(_ reports: [(Int, DeviceReport)]) {
        guard !reports.isEmpty, let client = client.withLock({ $0 }) else { return }
        for (index, report) in reports {
            let event = FleetEvent(.reported(report), source: names[index], identifier: "\(report.sequence)", time: nil)
            let topic = topics.text(.reported(device: names[index]))
            try? client.publish(MQTTMessage(topic: topic, payload: event.bytes, isRetained: true))
        }
    }

    // MARK: What the test does

    /// Time passes: apps finish, one device in a hundred comes or goes.
    func tick(flapping: Bool) {
        let (reports, mustSubscribe) = state.withLock { state in
            let now = Self.now
            var reports: [(Int, DeviceReport)] = []
            for index in state.devices.indices {
                if let debt = state.devices[index].debt, debt.until <= now.uptime {
                    state.devices[index].debt = nil
                    if state.devices[index].open == debt.session { state.devices[index].open = nil }
                    if !state.devices[index].isAway {
                        Self.tell(index, .device(Self.view(state.devices[index], now)), &state, &reports)
                    }
                }
                if flapping, state.random.below(100) == 0 { Self.turn(index, &state, &reports) }
                if !state.devices[index].isAway { Self.tell(index, .tick, &state, &reports) }
            }
            defer { state.mustSubscribe = false }
            return (reports, state.mustSubscribe && state.isConnected)
        }
        publish(reports)
        if mustSubscribe { try? client.withLock { $0 }?.subscribe(to: [topics.text(.allDesired)]) }
    }

    private static func turn(_ index: Int, _ state: inout State, _ reports: inout [(Int, DeviceReport)]) {
        state.devices[index].isAway.toggle()
        guard state.isConnected else { return }
        // Its broker goes on while the network is away.
        tell(index, state.devices[index].isAway ? .disconnected : .connected, &state, &reports)
        if !state.devices[index].isAway { tell(index, .device(view(state.devices[index], now)), &state, &reports) }
    }

    /// All devices have their network back.
    func bringBack() {
        let reports = state.withLock { state in
            var reports: [(Int, DeviceReport)] = []
            for index in state.devices.indices where state.devices[index].isAway { Self.turn(index, &state, &reports) }
            return reports
        }
        publish(reports)
    }

    /// From here on the sessions that are open now have to be over and clean.
    func begin() {
        state.withLock { state in
            for index in state.devices.indices {
                state.devices[index].open = state.devices[index].isSignedIn ? state.devices[index].epoch : nil
            }
        }
    }

    /// How many devices have nothing left of what was open then.
    var done: Int { state.withLock { $0.devices.count { $0.open == nil } } }
    var isConnected: Bool { state.withLock { $0.isConnected } }
}
