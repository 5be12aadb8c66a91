import Foundation
import Glibc
import NotifyCenterTestKit
import Testing

@testable import shared_device_fleet

@Suite("A fleet's metrics")
struct FleetMetricsTests {
    private static var fleet: FleetMetrics {
        var fleet = FleetMetrics()
        (fleet.isConnected, fleet.listed, fleet.unlisted, fleet.foreign) = (true, 2, 1, 5)
        (fleet.certificateEnd, fleet.devicesCertificateEnd, fleet.certificatesEnding) = (2_000_000, nil, 1)
        fleet.order = .init(number: 7, at: 1_000_000, counts: ["clean": 1, "unknown": 1], waived: 3, enforced: 4)
        return fleet
    }

    @Test("a fleet's metrics count devices by state, including zero, and name none")
    func fleet() {
        let lines = FleetMetrics.text(Self.fleet, states: ["unknown", "stuck", "clean"]).split(separator: "\n")
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
        let away = FleetMetrics.text(nil, states: ["clean"]).split(separator: "\n").filter { !$0.hasPrefix("#") }
        #expect(away == ["shared_device_fleet_up 0"])
        let empty = FleetMetrics.text(FleetMetrics(), states: ["clean"])
        #expect(!empty.contains("order_") && !empty.contains("certificate_end"))
    }

    @Test(
        "both of Prometheus' parsers accept the metrics",
        .enabled(
            if: system("/usr/bin/python3 -c 'import prometheus_client' 2>/dev/null") == 0,
            "python3-prometheus-client is not installed"
        ),
        arguments: ["prometheus_client.openmetrics.parser", "prometheus_client.parser"]
    )
    func parsers(module: String) async throws {
        let directory = try TemporaryDirectory("metrics")
        let file = "\(directory.path)/fleet.prom"
        try FleetMetrics.text(Self.fleet, states: ["clean"]).write(toFile: file, atomically: true, encoding: .utf8)
        let program = """
            import importlib, sys
            families = list(importlib.import_module(sys.argv[1]).text_string_to_metric_families(open(sys.argv[2]).read()))
            assert all(family.type == "gauge" and family.documentation and family.samples for family in families), families
            print(len(families), sum(len(family.samples) for family in families))
            """
        let parser = try ChildProcess("/usr/bin/python3", ["-c", program, module, file])
        #expect(await parser.exitStatus() == 0, "\(parser.errorText)")
        _ = try? await parser.line { _ in false }
        #expect(parser.lines == ["13 14"])
    }
}
