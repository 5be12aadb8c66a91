import Fleet
import FleetStage
import Glibc
import MQTTClient
import NotifyCenterTestKit

/// Many devices as states behind few connections, with a real mosquitto and the real controller. Some devices are
/// offline or flap, the server loses its data, and the controller is killed.
package struct StateLoad: Sendable {
    /// A violated guarantee.
    package struct Violation: Error, CustomStringConvertible {
        package let description: String
    }

    private let count: Int
    private let connections: Int
    private let seed: UInt64
    private let limit: TimeLimit?

    /// - Parameters:
    ///   - devices: a multiple of `connections`.
    ///   - seed: decides which devices are offline or flap, and how long apps take.
    ///   - limit: the time limit from the start until all devices are done.
    package init(devices: Int, connections: Int, seed: UInt64 = 1, limit: TimeLimit? = nil) {
        (count, self.connections, self.seed, self.limit) = (devices, connections, seed, limit)
    }

    /// Runs the simulation and reports its steps.
    ///
    /// - Throws: ``Violation`` if a device counts as done before it is, if the states do not add up, or if the devices
    ///   need more than two heartbeats after the last fault. Also if the limit is exceeded and no other program is the
    ///   cause.
    package func run(_ say: @escaping (String) -> Void) async throws {
        let begin = ContinuousClock.now
        let machine = try TimeLimit.machineTime()
        let note = { (what: String) in say("\(Self.seconds(begin.duration(to: .now))): \(what)") }
        var meter = UsageMeter()
        let stage = try await FleetStage(isSimulation: true)
        guard let topics = FleetTopics(fleet: FleetStage.fleet) else { throw Violation(description: "no such fleet") }
        try await stage.startController()
        let controller = try ControllerQuestions(bus: stage.bus.address)
        try await controller.list((0..<count).map(SimulatedDevices.name))
        note("\(count) devices are listed")
        let share = count / connections
        let groups = (0..<connections).map { index in
            SimulatedDevices(index * share..<(index + 1) * share, topics: topics, seed: seed &+ UInt64(index))
        }
        for (index, group) in groups.enumerated() {
            var options = stage.options(identifier: "sim-\(index)", certificate: "simulation")
            options.firstDelay = .milliseconds(100)
            try group.connect(options)
        }
        try await eventually("all are connected") { groups.allSatisfy(\.isConnected) }
        note("\(connections) connections, one device in ten is away")

        for group in groups { group.begin() }
        let order = try await controller.signOutAll()
        note("ordered")
        for round in 0..<8 {
            // Lets time pass, so that the faults happen while apps clean up.
            try await Task.sleep(for: .milliseconds(500))
            for group in groups { group.tick(flapping: true) }
            meter.read(stage.processes)
            if round == 2 {
                try await stage.killEngine(losesData: true)
                try await stage.startEngine()
                note("the server has lost its data")
            }
            if round == 5 {
                await stage.killController()
                try await stage.startController()
                note("the controller was killed, and is there again")
            }
            try await check(controller)
            if round % 3 == 2 { try await check(controller, order, groups) }
        }
        for group in groups { group.bringBack() }
        let repaired = ContinuousClock.now
        note("all have their network")
        var progress = try await controller.progress()
        while progress.undone > 0 {
            guard repaired.duration(to: .now) < .seconds(2 * ControllerState.heartbeatInterval) else {
                throw Violation(description: "not done within two heartbeats: \(progress.line)")
            }
            for group in groups { group.tick(flapping: false) }
            try await Task.sleep(for: .milliseconds(200))
            progress = try await check(controller)
        }
        try await check(controller, order, groups)
        note("all are done, \(Self.seconds(repaired.duration(to: .now))) after the last fault: \(progress.line)")
        let taken = begin.duration(to: .now) / .seconds(1)
        meter.read(stage.processes + [("devices", getpid())])
        say("\(groups.reduce(0) { $0 + $1.reported }) reports; \(meter.line)")
        guard let limit else { return }
        let all = try TimeLimit.machineTime() - machine
        say(try Self.judge(taken, by: limit, own: meter.processor, all: all))
    }

    private static func judge(_ taken: Double, by limit: TimeLimit, own: Double, all: Double) throws -> String {
        let times = "\(seconds(.seconds(taken))), the limit is \(seconds(.seconds(limit.seconds)))"
        let others = TimeLimit.others(taken: taken, own: own, all: all)
        let tenths = "\(Int(others * 10) / 10).\(Int(others * 10) % 10)"
        switch limit.verdict(taken: taken, own: own, all: all) {
        case .kept: return "in time: \(times)"
        case .notJudged: return "the time is not judged: \(times), and other processes have used \(tenths) processors"
        case .exceeded:
            throw Violation(
                description:
                    "too slow: \(times), with \(Int(own)) s of processor; other processes have used \(tenths) processors"
            )
        }
    }

    /// Checks that the states add up to the list (FL-14).
    @discardableResult
    private func check(_ controller: ControllerQuestions) async throws -> ControllerQuestions.Progress {
        let progress = try await controller.progress()
        guard progress.counts.values.reduce(0, +) == count, progress.total == count else {
            throw Violation(description: "\(count) devices are listed, and counted: \(progress.line)")
        }
        return progress
    }

    /// Checks that each device that counts as done has reported it and is done (FL-13).
    private func check(
        _ controller: ControllerQuestions,
        _ order: UInt64,
        _ groups: [SimulatedDevices]
    ) async throws {
        let counted = try await controller.done(order)
        // Read afterwards, because a finished device stays finished.
        let done = groups.flatMap { $0.done(order) }
        let wrong = counted.filter { name in
            guard let index = Int(name.dropFirst(SimulatedDevices.name(0).count - 1)), index < done.count else {
                return true
            }
            return !done[index]
        }
        guard wrong.isEmpty else {
            throw Violation(description: "\(wrong.count) count as done and are not, or are silent: \(wrong.prefix(5))")
        }
    }

    static func seconds(_ duration: Duration) -> String {
        let tenths = Int((duration / .milliseconds(100)).rounded())
        return "\(tenths / 10).\(tenths % 10) s"
    }
}
