import ArgumentParser
import CommandParts
import DBus
import Fleet
import FoundationEssentials
import Glibc

struct FleetMetricsCommand: ReportingCommand {
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

    func execute() throws { try output.write(metrics()) }

    private func metrics() throws -> String {
        do {
            let client = try controller.connect()
            // A limit of zero returns the counts only.
            let devices = try client.call(.getDevices, ["limit": .uint64(0)])
            let order: OrderProgress?
            do throws(CommandFailure) {
                order = OrderProgress(try client.call(.getOrder))
            } catch {
                // There was no order yet.
                guard error.exitStatus == EX_DATAERR else { throw error }
                order = nil
            }
            return FleetMetrics.text(devices, order)
        } catch let error as CommandFailure where error.exitStatus == EX_UNAVAILABLE {
            return FleetMetrics.text(nil, nil)
        }
    }
}

/// The metrics of a fleet, from its controller. Pure. No metric names a device, because there may be 100,000.
enum FleetMetrics {
    /// - Parameters:
    ///   - fleet: The controller's response to `GetDevices`; `nil` without one. Then there are no metrics of devices:
    ///     unknown is not done.
    ///   - order: The last order; `nil` before the first one.
    static func text(_ fleet: FleetClient.Fields?, _ order: OrderProgress?) -> String {
        var metrics = MetricsText("shared_device_fleet")
        metrics.add("up", "Whether the controller responds.", fleet == nil ? 0 : 1)
        guard let fleet else { return metrics.whole }
        let isConnected = fleet["isConnected"]?.booleanValue ?? false
        metrics.add("connected", "Whether the controller reaches the MQTT server.", isConnected ? 1 : 0)
        let number = { (key: String) in Double(fleet[key]?.unsignedValue ?? 0) }
        metrics.add(
            "devices",
            "Devices that are listed, and devices that report without being listed.",
            [([("listed", "yes")], number("listed")), ([("listed", "no")], number("unlisted"))]
        )
        metrics.add(
            "foreign_messages",
            "Messages since the start that the controller did not understand.",
            number("foreign")
        )
        metrics.add("old_reports", "Reports since the start that were older than the last known report.", number("old"))
        metrics.add("store_problem", "Whether the disk rejects reports.", fleet["problem"] == nil ? 0 : 1)
        let ends = [("controller", "certificateEnd"), ("devices", "devicesCertificateEnd")]
            .compactMap { of, key in fleet[key].seconds.map { ([("of", of)], $0) } }
        if !ends.isEmpty {
            metrics.add(
                "certificate_end_seconds",
                "When the controller's certificate ends, and the first end to come of the devices', in seconds since 1970.",
                ends
            )
        }
        metrics.add(
            "certificates_ending",
            "Listed devices whose certificates end within 30 days or have ended.",
            number("certificatesEnding")
        )
        guard let order else { return metrics.whole }
        metrics.add("order", "The number of the last order.", Double(order.order))
        if let start = order.at?.timeIntervalSince1970 {
            metrics.add("order_start_seconds", "When the last order was given, in seconds since 1970.", start)
        }
        metrics.add(
            "order_devices",
            "Devices of the last order, by state; the states clean and nobody are done.",
            Standing.words.map { ([("state", $0)], Double(order.counts[$0] ?? 0)) }
        )
        metrics.add("order_waived_apps", "Apps whose cleanup administrators have waived.", Double(order.waived))
        metrics.add(
            "order_enforced_apps",
            "Apps that devices have stopped, and whose data they have deleted.",
            Double(order.enforced)
        )
        return metrics.whole
    }
}
