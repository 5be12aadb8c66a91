import CommandParts

/// The metrics of a fleet, from its controller. Pure. No metric names a device, because there may be 100,000.
struct FleetMetrics {
    struct Order {
        let number: UInt64
        /// Seconds since 1970.
        let at: Double?
        /// The number of devices in each state.
        let counts: [String: UInt64]
        /// The number of apps that administrators have waived, and of apps whose data the devices have deleted.
        let waived: UInt64
        let enforced: UInt64

        init(number: UInt64, at: Double?, counts: [String: UInt64], waived: UInt64, enforced: UInt64) {
            self.number = number
            self.at = at
            self.counts = counts
            self.waived = waived
            self.enforced = enforced
        }
    }

    var isConnected = false
    var (listed, unlisted): (UInt64, UInt64) = (0, 0)
    /// The numbers of invalid messages, and of reports that were older than the known ones.
    var (foreign, old): (UInt64, UInt64) = (0, 0)
    /// Whether the disk does not accept reports.
    var hasStoreProblem = false
    /// When the controller's certificate ends, and the earliest end of a listed device's certificate, in seconds since
    /// 1970.
    var (certificateEnd, devicesCertificateEnd): (Double?, Double?) = (nil, nil)
    /// The number of listed devices' certificates that end within 30 days or have ended.
    var certificatesEnding: UInt64 = 0
    /// `nil` before the first order.
    var order: Order?

    init() {}

    /// - Parameters:
    ///   - fleet: `nil` if the controller does not respond. Then there are no metrics of devices: unknown is not done.
    ///   - states: All states, so that those without a device are listed, too.
    /// - Returns: The whole exposition.
    static func text(_ fleet: FleetMetrics?, states: [String]) -> String {
        var metrics = MetricsText("shared_device_fleet")
        metrics.add("up", "Whether the controller responds.", fleet == nil ? 0 : 1)
        guard let fleet else { return metrics.whole }
        metrics.add("connected", "Whether the controller reaches the MQTT server.", fleet.isConnected ? 1 : 0)
        let devices = [("yes", fleet.listed), ("no", fleet.unlisted)]
        metrics.add(
            "devices",
            "Devices that are listed, and devices that report without being listed.",
            devices.map { ([("listed", $0.0)], Double($0.1)) }
        )
        metrics.add(
            "foreign_messages",
            "Messages since the start that the controller did not understand.",
            Double(fleet.foreign)
        )
        metrics.add(
            "old_reports",
            "Reports since the start that were older than the last known report.",
            Double(fleet.old)
        )
        metrics.add("store_problem", "Whether the disk rejects reports.", fleet.hasStoreProblem ? 1 : 0)
        let ends = [("controller", fleet.certificateEnd), ("devices", fleet.devicesCertificateEnd)]
            .compactMap { of, end in end.map { ([("of", of)], $0) } }
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
            Double(fleet.certificatesEnding)
        )
        guard let order = fleet.order else { return metrics.whole }
        metrics.add("order", "The number of the last order.", Double(order.number))
        if let at = order.at {
            metrics.add("order_start_seconds", "When the last order was given, in seconds since 1970.", at)
        }
        metrics.add(
            "order_devices",
            "Devices of the last order, by state; the states clean and nobody are done.",
            states.map { ([("state", $0)], Double(order.counts[$0] ?? 0)) }
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
