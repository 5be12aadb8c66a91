import FoundationEssentials
import Glibc

/// The time limit of a simulation, for a machine with two idle processors.
package struct TimeLimit: Sendable {
    package enum Verdict: Sendable, Hashable {
        case kept
        case exceeded
        /// The time was longer while other programs used the processors, so it tells nothing about the simulation.
        case notJudged
    }

    /// The number of processors that the limit assumes.
    private static let processors = 2.0
    /// The number of processors used by other programs from which on the time is not judged.
    private static let busy = 0.2

    package let seconds: Double

    package init(seconds: Double) { self.seconds = seconds }

    /// Judges a time.
    ///
    /// - Parameters:
    ///   - taken: the elapsed seconds.
    ///   - own: the processor seconds of the simulation's processes.
    ///   - all: the processor seconds of all processes of the machine in that time.
    package func verdict(taken: Double, own: Double, all: Double) -> Verdict {
        if taken <= seconds { return .kept }
        // More than the assumed processors can provide within the limit, so other programs are not the cause.
        if own > seconds * Self.processors { return .exceeded }
        return Self.others(taken: taken, own: own, all: all) < Self.busy ? .exceeded : .notJudged
    }

    package static func others(taken: Double, own: Double, all: Double) -> Double { max(0, all - own) / taken }

    /// The busy seconds of all processors since the boot.
    package static func machineTime() throws -> Double {
        let line = try String(contentsOfFile: "/proc/stat", encoding: .utf8).prefix { $0 != "\n" }
        let times = line.split(separator: " ").dropFirst().prefix(8).compactMap { Double($0) }
        guard times.count == 8 else { throw CocoaError(.fileReadCorruptFile) }
        // Without idle and iowait.
        return (times.reduce(0, +) - times[3] - times[4]) / Double(sysconf(CInt(_SC_CLK_TCK)))
    }
}
