import Fleet
import FleetStage
import Foundation
import NotifyCenterTestKit
import Testing

/// Many devices over few connections, with a real mosquitto, the controller and the command. `make test-fleet` has 20,000 devices.
@Suite("Many devices")
struct FleetLoadTests {
    private static let environment = ProcessInfo.processInfo.environment
    private static let count = environment["FLEET_DEVICES"].flatMap { Int($0) } ?? 2000
    private static let connections = environment["FLEET_CONNECTIONS"].flatMap { Int($0) } ?? 10

    private struct Progress: Decodable {
        let total: Int
        let undoneCount: Int
        let counts: [String: Int]
    }

    private static func progress(_ outcome: FleetStage.Outcome) throws -> Progress {
        try JSONDecoder().decode(Progress.self, from: Data(outcome.lines.joined(separator: "\n").utf8))
    }

    @Test(
        "FL-1, FL-13, FL-14: with a server that loses its data and a controller that is killed, nobody counts who has not reported"
    )
    func converges() async throws {
        let begin = ContinuousClock.now
        var notes: [String] = []
        let note = { (what: String) in
            notes.append("\(Int(begin.duration(to: .now) / .milliseconds(1))) ms: \(what)")
        }
        let stage = try await FleetStage(isSimulation: true)
        let topics = try #require(FleetTopics(fleet: "clinic"))
        try await stage.startController()
        let names = (0..<Self.count).map { "d-\($0)" }
        for start in stride(from: 0, to: names.count, by: FleetProtocol.mostNamed) {
            _ = try await stage.fleet(
                ["device", "add"] + names[start..<min(start + FleetProtocol.mostNamed, names.count)]
            )
        }
        let share = Self.count / Self.connections
        let groups = (0..<Self.connections).map { index in
            SimulatedDevices(index * share..<(index + 1) * share, topics: topics, seed: UInt64(index))
        }
        for (index, group) in groups.enumerated() { try group.connect(stage, "sim-\(index)") }
        try await eventually("all are connected") { groups.allSatisfy(\.isConnected) }
        for group in groups { group.tick(flapping: false) }
        note("listed and connected")

        for group in groups { group.begin() }
        _ = try await stage.fleet("sign-out", "--all", "--reason", "x", "--wait", "0", "--json")
        for round in 0..<8 {
            for group in groups { group.tick(flapping: true) }
            if round == 2 {
                try await stage.killEngine(losesData: true)
                try await stage.startEngine()
                note("the server has lost its data")
            }
            if round == 5 {
                await stage.killController()
                try await stage.startController()
                note("the controller was killed")
            }
            let progress = try Self.progress(try await stage.fleet("status", "--json"))
            // Counted afterwards: what is done stays done.
            let done = groups.reduce(0) { $0 + $1.done }
            #expect(progress.total - progress.undoneCount <= done, "round \(round): \(progress.counts)")
            #expect(progress.counts.values.reduce(0, +) == Self.count)
        }
        for group in groups { group.bringBack() }
        let repaired = ContinuousClock.now
        try await eventually("all are done", within: .seconds(120)) {
            for group in groups { group.tick(flapping: false) }
            return try Self.progress(try await stage.fleet("status", "--json")).undoneCount == 0
        }
        let took = repaired.duration(to: .now)
        #expect(took < .seconds(2 * ControllerState.heartbeatInterval))
        note("all are done, \(took) after the last fault; \(stage.memory)")
        if Self.environment["FLEET_DEVICES"] != nil { print(notes.joined(separator: "\n")) }
    }
}
