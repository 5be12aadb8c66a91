import ArgumentParser
import CommandParts
import DBus
import Fleet
import Glibc

struct FleetMetricsCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "metrics",
        abstract: "Writes the fleet as metrics, in the text form of OpenMetrics.",
        discussion: """
            As “shared-device metrics” does for a device: run it each minute with --output FILE.prom. No metric names a device. If \
            no controller responds, shared_device_fleet_up is 0, and the other metrics are absent.
            """
    )

    @OptionGroup var output: MetricsOutput
    @OptionGroup var controller: FleetOptions

    func run() throws {
        try reportingFailure { try output.write(metrics()) }
    }

    private func metrics() throws -> String {
        do {
            let client = try controller.connect()
            // A limit of zero returns the counts only.
            let devices = try client.call(.getDevices, ["limit": .uint64(0)])
            return try FleetMetrics.text(devices, lastOrder(client), states: Standing.words)
        } catch let error as CommandFailure where error.exitStatus == EX_UNAVAILABLE {
            return FleetMetrics.text(nil, nil, states: Standing.words)
        }
    }

    /// - Returns: `nil` if there was no order yet.
    private func lastOrder(_ client: FleetClient) throws(CommandFailure) -> OrderProgress? {
        do throws(CommandFailure) {
            return OrderProgress(try client.call(.getOrder))
        } catch {
            guard error.exitStatus == EX_DATAERR else { throw error }
            return nil
        }
    }
}
