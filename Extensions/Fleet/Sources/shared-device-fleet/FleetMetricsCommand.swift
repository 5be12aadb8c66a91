import ArgumentParser
import CommandParts
import DBus
import Fleet
import FoundationEssentials
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
        try reportingFailure { try output.write(FleetMetrics.text(try fleet(), states: Standing.words)) }
    }

    /// - Returns: `nil` if no controller responds.
    private func fleet() throws -> FleetMetrics? {
        let client: FleetClient
        let (devices, order): (FleetClient.Fields, OrderProgress?)
        do {
            client = try controller.connect()
            // A limit of zero returns the counts only.
            devices = try client.call(.getDevices, ["limit": .uint64(0)])
            order = try lastOrder(client)
        } catch let error as CommandFailure where error.exitStatus == EX_UNAVAILABLE {
            return nil
        }
        var fleet = FleetMetrics()
        fleet.isConnected = devices["isConnected"]?.booleanValue ?? false
        fleet.listed = devices["listed"]?.unsignedValue ?? 0
        fleet.unlisted = devices["unlisted"]?.unsignedValue ?? 0
        fleet.foreign = devices["foreign"]?.unsignedValue ?? 0
        fleet.old = devices["old"]?.unsignedValue ?? 0
        fleet.hasStoreProblem = devices["problem"] != nil
        fleet.certificateEnd = devices["certificateEnd"].seconds
        fleet.devicesCertificateEnd = devices["devicesCertificateEnd"].seconds
        fleet.certificatesEnding = devices["certificatesEnding"]?.unsignedValue ?? 0
        fleet.order = order.map { order in
            .init(
                number: order.order,
                at: order.at?.timeIntervalSince1970,
                counts: order.counts,
                waived: order.waived,
                enforced: order.enforced
            )
        }
        return fleet
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
