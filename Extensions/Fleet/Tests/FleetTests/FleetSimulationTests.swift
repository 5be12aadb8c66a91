import Basics
import DBus
import Fleet
import FleetLoad
import Synchronization
import Testing

@Suite("A fleet in memory")
struct FleetSimulationTests {
    /// The devices that the controller takes for done although the session is still open or has a pending cleanup. Uses
    /// the simulated truth and no reports.
    private static func liars(_ fleet: MemoryFleet, _ order: RecordedOrder, _ open: [Int: UInt64]) -> [String] {
        fleet.controller.standings(of: order, now: fleet.now).compactMap { name, standing in
            guard standing.isDone, let index = Int(name.dropFirst(2)), let session = open[index] else { return nil }
            let broker = fleet.devices[index].broker
            let isOver = broker.ended.contains(session) && broker.debts[session] == nil
            return isOver ? nil : "\(name): session \(session), \(standing)"
        }
    }

    @Test("FL-1, FL-13, FL-14: no device is done early; connected ones are done soon", arguments: 1...60)
    func nobodyCountsTooEarly(seed: Int) throws {
        var fleet = MemoryFleet(devices: 40, seed: UInt64(seed))
        for index in fleet.devices.indices where fleet.random.chance(70) { fleet.signIn(index) }
        for index in fleet.devices.indices { fleet.devices[index].isAway = fleet.random.chance(10) }
        for _ in 0..<10 { fleet.step() }
        var given: [(order: RecordedOrder, count: Int, open: [Int: UInt64])] = []
        func give() throws {
            let isForAll = fleet.random.chance(70)
            let names = (0..<20).map(MemoryFleet.name)
            // The sessions that are open now and must end.
            let open = fleet.devices.indices.compactMap { index -> (Int, UInt64)? in
                let broker = fleet.devices[index].broker
                return broker.isSignedIn && (isForAll || index < 20) ? (index, broker.epoch) : nil
            }
            let order = try fleet.order(isForAll ? .all : .devices(names))
            given.append((order, isForAll ? 40 : 20, Dictionary(uniqueKeysWithValues: open)))
        }
        try give()
        fleet.isFaulty = true
        for second in 0..<120 {
            let index = fleet.random.below(fleet.devices.count)
            switch fleet.random.below(14) {
            case 0: fleet.signIn(index)
            case 1: fleet.signOut(index)
            case 2: fleet.killAgent(index)
            case 3: fleet.devices[index].isAway.toggle()
            case 4 where second % 7 == 0: fleet.loseEngine()
            case 5 where second % 7 == 0: fleet.killController()
            case 6: fleet.cutPower(index)
            case 7 where second % 3 == 0:
                try give()
                // The kill comes before the publication: the order is stored first, so it must survive.
                if fleet.random.chance(20) { fleet.killController() }
            default: break
            }
            fleet.step()
            for (order, _, open) in given {
                let liars = Self.liars(fleet, order, open)
                #expect(liars.isEmpty, "seed \(seed), second \(second), order \(order.number): \(liars)")
            }
        }
        // After the faults all devices are done within two heartbeats.
        fleet.isFaulty = false
        for index in fleet.devices.indices { fleet.devices[index].isAway = false }
        fleet.loseEngine()
        for _ in 0..<Int(2 * ControllerState.heartbeatInterval) { fleet.step() }
        for (order, count, _) in given {
            let standings = fleet.controller.standings(of: order, now: fleet.now)
            #expect(standings.count == count, "the states add up to the list (FL-14)")
            let undone = standings.filter { !$0.standing.isDone }
            #expect(undone.isEmpty, "seed \(seed), order \(order.number): \(undone)")
        }
    }
}

/// Many devices with a real mosquitto and the controller. `make test-fleet` uses 100,000, and 10,000 with a connection
/// each.
@Suite("Many devices")
struct FleetLoadTests {
    @Test("FL-1, FL-13, FL-14: a lost server and a killed controller miscount no device")
    func states() async throws {
        // Throws if a count is wrong, or if not all devices are done within two heartbeats.
        let lines = Locked<[String]>([])
        try await StateLoad(devices: 2000, connections: 10, limit: TimeLimit(seconds: 3600)).run { line in
            lines.withLock { $0.append(line) }
        }
        let last = lines.withLock { $0.last ?? "" }
        #expect(last.hasPrefix("in time: ") && last.hasSuffix("the limit is 3600.0 s"), "\(last)")
    }

    @Test(
        "a simulation over its time fails unless other programs used the processors",
        arguments: [
            (60, 37, 40, .kept), (59, 37, 400, .kept), (61, 37, 40, .exceeded), (61, 37, 48, .exceeded),
            (61, 37, 50, .notJudged), (300, 119, 600, .notJudged), (300, 121, 600, .exceeded), (61, 40, 37, .exceeded),
        ] as [(Double, Double, Double, TimeLimit.Verdict)]
    )
    func timeLimit(taken: Double, own: Double, all: Double, verdict: TimeLimit.Verdict) throws {
        #expect(TimeLimit(seconds: 60).verdict(taken: taken, own: own, all: all) == verdict)
        let machine = try TimeLimit.machineTime()
        #expect(machine > 0 && machine.isFinite)
    }

    @Test("FL-13: devices with own connections carry out orders after a lost server")
    func connections() async throws {
        try await ConnectionLoad(devices: 20, processes: 2).run { _ in }
    }
}
