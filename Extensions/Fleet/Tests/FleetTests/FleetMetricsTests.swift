import DBus
import Testing

@testable import shared_device_fleet

@Suite("A fleet's metrics")
struct FleetMetricsTests {
    @Test("a fleet's metrics count devices by state, including zero, and name none")
    func fleet() {
        let fleet: FleetClient.Fields = [
            "isConnected": .boolean(true), "listed": .uint64(2), "unlisted": .uint64(1), "foreign": .uint64(5),
            "certificateEnd": .double(2_000_000), "certificatesEnding": .uint64(1),
        ]
        let order = OrderProgress([
            "order": .uint64(7), "at": .double(1_000_000), "waived": .uint64(3), "enforced": .uint64(4),
            "counts": .fields(["clean": .uint64(1), "unknown": .uint64(1)]),
        ])
        let lines = FleetMetrics.text(fleet, order).split(separator: "\n")
        for line in [
            "shared_device_fleet_up 1", "shared_device_fleet_connected 1",
            #"shared_device_fleet_devices{listed="no"} 1"#,
            "shared_device_fleet_order 7", #"shared_device_fleet_order_devices{state="clean"} 1"#,
            #"shared_device_fleet_order_devices{state="stuck"} 0"#, "shared_device_fleet_order_waived_apps 3",
            "shared_device_fleet_order_enforced_apps 4",
            #"shared_device_fleet_certificate_end_seconds{of="controller"} 2000000"#,
            "shared_device_fleet_certificates_ending 1", "shared_device_fleet_order_start_seconds 1000000",
            "shared_device_fleet_foreign_messages 5",
        ] { #expect(lines.contains(line[...]), "\(line)") }
        let families = lines.filter { $0.hasPrefix("# TYPE ") }
        #expect(families.count == 13 && Set(families).count == 13)
        let away = FleetMetrics.text(nil, nil).split(separator: "\n").filter { !$0.hasPrefix("#") }
        #expect(away == ["shared_device_fleet_up 0"])
        let empty = FleetMetrics.text([:], nil)
        #expect(!empty.contains("order_") && !empty.contains("certificate_end"))
    }
}
