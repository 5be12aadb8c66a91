import FoundationEssentials
import Glibc

/// How long a simulation may take on two processors that are its own.
package struct TimeLimit: Sendable {
    package enum Verdict: Sendable, Hashable {
        case kept
        case exceeded
        /// It took longer, and other programs have used the processors meanwhile: the time says nothing of the simulation.
        case notJudged
    }

    /// So many processors the limit is meant for.
    private static let processors = 2.0
    /// From so many processors on that others use, a time says nothing.
    private static let busy = 0.2

    package let seconds: Double

    package init(seconds: Double) { self.seconds = seconds }

    /// What a time says.
    ///
    /// - Parameters:
    ///   - taken: in seconds.
    ///   - own: how many seconds of processor the simulation's processes have used.
    ///   - all: how many all processes of the machine have used meanwhile.
    package func verdict(taken: Double, own: Double, all: Double) -> Verdict {
        if taken <= seconds { return .kept }
        // More than these processors had to give: nobody else is the reason.
        if own > seconds * Self.processors { return .exceeded }
        return Self.others(taken: taken, own: own, all: all) < Self.busy ? .exceeded : .notJudged
    }

    /// How many processors others have used.
    package static func others(taken: Double, own: Double, all: Double) -> Double { max(0, all - own) / taken }

    /// How many seconds all processors of the machine have worked since its start.
    package static func machineTime() throws -> Double {
        let line = try String(contentsOfFile: "/proc/stat", encoding: .utf8).prefix { $0 != "\n" }
        let times = line.split(separator: " ").dropFirst().prefix(8).compactMap { Double($0) }
        guard times.count == 8 else { throw CocoaError(.fileReadCorruptFile) }
        // Without idle and iowait.
        return (times.reduce(0, +) - times[3] - times[4]) / Double(sysconf(CInt(_SC_CLK_TCK)))
    }
}
