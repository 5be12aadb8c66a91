import DeviceConfiguration
import FoundationEssentials
package import SharedDevice

/// The metrics of a device. Pure. No metric names a person or an app, whose names would be labels without a bound.
package enum DeviceMetrics {
    /// Without a response of the broker there is only `up`: unknown does not mean “no user signed in”.
    package static func text(_ device: ObservedDevice?, _ round: CleanupReport?) -> String {
        var metrics = MetricsText("shared_device")
        metrics.add("up", "Whether the broker responds.", device == nil ? 0 : 1)
        guard let device else { return metrics.whole }
        let labels = [("mode", device.mode), ("policy", device.cleanupPolicy), ("version", device.brokerVersion)]
        let information = "The device's mode, its cleanup policy and the broker's version, as labels."
        metrics.add("information", information, [(labels, 1)])
        metrics.add("signed_in", "Whether an account is signed in.", device.account == nil ? 0 : 1)
        if device.account != nil, let since = device.signedInAt?.timeIntervalSince1970 {
            metrics.add("session_start_seconds", "When the session began, in seconds since 1970.", since)
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
        let problems = ObservedDevice.Problem.Kind.allCases.map { kind in
            ([("kind", kind.rawValue)], Double(device.problems.count { $0.kind == kind }))
        }
        metrics.add("problems", "Problems of the device, by kind.", problems)
        let ends = device.certificates.compactMap { certificate in
            certificate.end.map { ([("use", certificate.use.rawValue)], $0.timeIntervalSince1970) }
        }
        if !ends.isEmpty {
            let help = "When certificates end that sign-in or the fleet needs, in seconds since 1970."
            metrics.add("certificate_end_seconds", help, ends)
        }
        if let round { describe(round, &metrics) }
        return metrics.whole
    }

    private static func describe(_ round: CleanupReport, _ metrics: inout MetricsText) {
        let end = round.endedAt.timeIntervalSince1970
        metrics.add("cleanup_start_seconds", "When the last session ended, in seconds since 1970.", end)
        let apps = CleanupReport.Progress.allCases.map { progress in
            ([("progress", progress.rawValue)], Double(round.apps.count { $0.progress == progress }))
        }
        metrics.add("cleanup_apps", "Apps of the last session's cleanup, by how far they are.", apps)
        guard round.isComplete else { return }
        let help = "How long the last session's cleanup took, from the sign-out to the last report."
        metrics.add("cleanup_duration_seconds", help, round.apps.compactMap(\.finishedAfter).max() ?? 0)
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
