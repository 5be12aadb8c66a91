import DeviceConfiguration
import FoundationEssentials
package import SharedDevice

/// The metrics of a device. Pure. No metric names a person or an app, whose names would be labels without a bound.
package struct DeviceMetrics {
    private var metrics = MetricsText("shared_device")

    /// Without a response of the broker there is only `up`: unknown does not mean “no user signed in”.
    package static func text(_ device: ObservedDevice?, _ round: CleanupReport?) -> String {
        var view = DeviceMetrics()
        view.metrics.add("up", "Whether the broker responds.", device == nil ? 0 : 1)
        if let device { view.describe(device) }
        if device != nil, let round { view.describe(round) }
        return view.metrics.whole
    }

    private mutating func describe(_ device: ObservedDevice) {
        let labels = [("mode", device.mode), ("policy", device.cleanupPolicy), ("version", device.brokerVersion)]
        metrics.add(
            "information",
            "The device's mode, its cleanup policy and the broker's version, as labels.",
            [(labels, 1)]
        )
        metrics.add("signed_in", "Whether an account is signed in.", device.account == nil ? 0 : 1)
        if device.account != nil, let since = device.signedInAt {
            metrics.add(
                "session_start_seconds",
                "When the session began, in seconds since 1970.",
                since.timeIntervalSince1970
            )
        }
        metrics.add("sign_in_held_apps", "Apps that the next sign-in waits for.", Double(device.signInHeldFor.count))
        let states: [(String, (ObservedDevice.App) -> Bool)] = [
            ("running", \.isRunning), ("holding", \.holdsData), ("owing", { !$0.owes.isEmpty }),
            ("not_startable", { $0.startProblem != nil }),
        ]
        metrics.add(
            "apps",
            "Apps that run, hold data of the signed-in user, owe a cleanup, or are not started by the bus.",
            states.map { state, isSo in ([("state", state)], Double(device.apps.count(where: isSo))) }
        )
        metrics.add(
            "problems",
            "Problems of the device, by kind.",
            ObservedDevice.Problem.Kind.allCases.map { kind in
                ([("kind", kind.rawValue)], Double(device.problems.count { $0.kind == kind }))
            }
        )
        describe(device.certificates)
    }

    private mutating func describe(_ certificates: [ObservedCertificate]) {
        let ends = certificates.compactMap { certificate in
            certificate.end.map { ([("use", certificate.use.rawValue)], $0.timeIntervalSince1970) }
        }
        guard !ends.isEmpty else { return }
        metrics.add(
            "certificate_end_seconds",
            "When certificates end that sign-in or the fleet needs, in seconds since 1970.",
            ends
        )
    }

    private mutating func describe(_ round: CleanupReport) {
        metrics.add(
            "cleanup_start_seconds",
            "When the last session ended, in seconds since 1970.",
            round.endedAt.timeIntervalSince1970
        )
        metrics.add(
            "cleanup_apps",
            "Apps of the last session's cleanup, by how far they are.",
            CleanupReport.Progress.allCases.map { progress in
                ([("progress", progress.rawValue)], Double(round.apps.count { $0.progress == progress }))
            }
        )
        guard round.isComplete else { return }
        metrics.add(
            "cleanup_duration_seconds",
            "How long the last session's cleanup took, from the sign-out to the last report.",
            round.apps.compactMap(\.finishedAfter).max() ?? 0
        )
    }
}

/// Metrics in the text format of OpenMetrics 1.0.
///
/// Every metric is a gauge: node_exporter reads files in the older text format of Prometheus. Gauges are the same in
/// both formats, while types such as `info` are an error in the older one.
public struct MetricsText {
    private let prefix: String
    private var text = ""

    public init(_ prefix: String) { self.prefix = prefix }

    public var whole: String { text + "# EOF\n" }

    public mutating func add(_ name: String, _ help: String, _ value: Double) { add(name, help, [([], value)]) }

    public mutating func add(_ name: String, _ help: String, _ samples: [([(String, String)], Double)]) {
        let name = "\(prefix)_\(name)"
        text += "# TYPE \(name) gauge\n"
        if name.hasSuffix("_seconds") { text += "# UNIT \(name) seconds\n" }
        text += "# HELP \(name) \(help)\n"
        for (labels, value) in samples {
            let list = labels.map { "\($0.0)=\"\(Self.escaped($0.1))\"" }.joined(separator: ",")
            let number = Int(exactly: value).map { "\($0)" } ?? "\(value)"
            text += "\(name)\(list.isEmpty ? "" : "{\(list)}") \(number)\n"
        }
    }

    private static func escaped(_ text: String) -> String {
        text.unicodeScalars.map { scalar in
            switch scalar {
            case "\\": "\\\\"
            case "\"": "\\\""
            case "\n": "\\n"
            default: String(scalar)
            }
        }.joined()
    }
}
