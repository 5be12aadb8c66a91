import FleetLoad
import Testing

/// Many devices with a real mosquitto and the controller. `make test-fleet` has 100,000 of them, and 10,000 with a connection each.
@Suite("Many devices")
struct FleetLoadTests {
    @Test(
        "FL-1, FL-13, FL-14: with a server that loses its data and a controller that is killed, nobody counts who has not reported"
    )
    func states() async throws {
        // It throws where that does not hold, or where not all are done within two heartbeats.
        try await StateLoad(devices: 2000, connections: 10).run { _ in }
    }

    @Test("FL-13: devices with a connection and a certificate each carry orders out, also when the server lost all")
    func connections() async throws {
        try await ConnectionLoad(devices: 20, processes: 2).run { _ in }
    }
}
