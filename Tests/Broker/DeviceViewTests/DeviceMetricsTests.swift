import CommandParts
import DBus
import Foundation
import Glibc
import NotifyCenterTestKit
import SharedDevice
import Testing

@Suite("A device's metrics")
struct DeviceMetricsTests {
    private static let signedIn = ObservedDevice(
        answer(
            [
                "account": account("ada"), "signedInAt": .double(1_000_000.5),
                "brokerVersion": .string("1 \"a\\b\"\nc"),
                "storeProblem": .string("full"), "enforcementProblems": .array([.string("a"), .string("b")], of: "s"),
                "manifestProblems": .array([.string("c")], of: "s"),
                "certificates": certificates(
                    ("provider", .double(1_000_060 + 20 * 86400)),
                    ("fleetAgent", .double(1_000_060 + 40 * 86400)),
                    ("fleetAuthority", nil),
                    ("other", .double(1_000_060))
                ),
            ],
            apps: [app("notes", holds: true), app("mail", runs: false, owes: [3])]
        )
    )

    @Test("metrics have debts, problems and times but no names, and little without a broker")
    func content() {
        let notes = CleanupReport.App(identifier: "org.example.notes", progress: .finished, finishedAfter: 1.25)
        let lines = DeviceMetrics.text(Self.signedIn, adasRound(.complete, notes)).split(separator: "\n")
        for line in [
            "shared_device_up 1", "shared_device_signed_in 1", "shared_device_session_start_seconds 1000000.5",
            #"shared_device_apps{state="running"} 1"#, #"shared_device_apps{state="owing"} 1"#,
            #"shared_device_problems{kind="store"} 1"#, #"shared_device_problems{kind="enforcement"} 2"#,
            #"shared_device_problems{kind="manifest"} 1"#, #"shared_device_problems{kind="certificate"} 2"#,
            #"shared_device_certificate_end_seconds{use="provider"} 2728060"#,
            #"shared_device_certificate_end_seconds{use="fleetAgent"} 4456060"#,
            #"shared_device_problems{kind="login"} 0"#, #"shared_device_cleanup_apps{progress="finished"} 1"#,
            "shared_device_cleanup_start_seconds 1000000", "shared_device_cleanup_duration_seconds 1.25",
        ] { #expect(lines.contains(line[...]), "\(line)") }
        #expect(lines.last == "# EOF")
        #expect(!lines.contains { $0.contains("ada") || $0.contains("notes") })
        // Without a broker only that is reported.
        let samples = DeviceMetrics.text(nil, nil).split(separator: "\n").filter { !$0.hasPrefix("#") }
        #expect(samples == ["shared_device_up 0"])
        // An open cleanup has no duration.
        let open = adasRound(.open, .init(identifier: "a", progress: .owed))
        #expect(!DeviceMetrics.text(ObservedDevice(answer()), open).contains("duration"))
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
        let file = "\(directory.path)/device.prom"
        try DeviceMetrics.text(Self.signedIn, adasRound(.complete)).write(
            toFile: file,
            atomically: true,
            encoding: .utf8
        )
        let program = """
            import importlib, sys
            families = list(importlib.import_module(sys.argv[1]).text_string_to_metric_families(open(sys.argv[2]).read()))
            assert all(family.type == "gauge" and family.documentation and family.samples for family in families), families
            samples = [sample for family in families for sample in family.samples]
            version = [sample.labels["version"] for sample in samples if sample.name == "shared_device_information"]
            assert version == ['1 "a\\\\b"\\nc'], version
            print(len(families), len(samples))
            """
        let parser = try ChildProcess("/usr/bin/python3", ["-c", program, module, file])
        #expect(await parser.exitStatus() == 0, "\(parser.errorText)")
        _ = try? await parser.line { _ in false }
        #expect(parser.lines == ["11 27"])
    }
}
