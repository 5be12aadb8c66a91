import Foundation
import Glibc
@_spi(Extensions) import NotifyCenterTestKit
import Testing

/// A bus like the system bus with the installed policies, the real notifyd as its unit runs it, and two honest
/// processes, one of root and one of another user.
final class Machine {
    /// Users that every Linux has. They stand for the users of the units, which do not exist here.
    private static let (notifydUser, notifydName): (uid_t, String) = (1, "daemon")
    private static let sharedDeviceName = "sys"
    static let honestUsers: [uid_t] = [0, 2]
    static let hostileUser: uid_t = 65534

    /// Names that these tests do not post. The honest processes may hear them, and the hostile process may not post
    /// them.
    private static let quiet = ["SHARED_MODE_CURRENT_ACCOUNT_CHANGED", "policy.quiet", "reserved.quiet"]
    /// Reserves a name for root and notifyd in the bus's policy. notify.conf lets every user post it.
    private static let policy = """
        <!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
         "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
        <busconfig>
          <policy context="default"><deny send_interface="org.notifycenter.Darwin1.policy.quiet"/></policy>
          <policy user="root"><allow send_interface="org.notifycenter.Darwin1.policy.quiet"/></policy>
          <policy user="\(notifydName)"><allow send_interface="org.notifycenter.Darwin1.policy.quiet"/></policy>
        </busconfig>
        """
    /// The installed notifyd: a program without optimization reads more slowly than the bus writes.
    static let releasedProgram = ProcessInfo.processInfo.environment["NOTIFY_CENTER_TEST_NOTIFYD"]
    private static let program = releasedProgram ?? ChildProcess.built("notifyd")
    private static let configuration = "reserve reserved. 0 0 rwr-r-\nreserve reserved.secret 0 0 rw----\n"

    let bus: PrivateBus
    let unit: Unit
    private let directory: TemporaryDirectory
    private(set) var notifyd: ChildProcess?
    private(set) var honest: [ChildProcess] = []

    /// - Parameter bytesPerConnection: The bytes that dbus-daemon holds of one sender, or for one receiver; `nil` for
    ///   its default.
    init(bytesPerConnection: Int? = nil) async throws {
        unit = try Unit(contentsOf: shippedFile("systemd-system/notifyd.service"))
        var standIns = ["shared-device": Self.sharedDeviceName]
        if let user = unit.user { standIns[user] = Self.notifydName }
        directory = try TemporaryDirectory("hostile-notify")
        chmod(directory.path, 0o755)
        var options = PrivateBus.Options.likeSystemBus(
            policies: ["org.notifycenter.Notifyd1.conf", "org.notifycenter.SharedDevice1.conf"],
            standIns: standIns
        )
        options.bytesPerConnection = bytesPerConnection
        options.configurationFiles.append(try Self.write(Self.policy, "\(directory.path)/policy.conf"))
        bus = try PrivateBus(options)
        try Self.write(Self.configuration, configurationFile)
        // The copy has another name than the hostile process, because notifyd tells the hostile process about its own
        // program.
        let copy = try ChildProcess("cp", [ChildProcess.built("hostile-client"), honestProgram])
        guard await copy.exitStatus() == 0 else { throw ChildProcess.Ended(copy) }
        try await runNotifyd()
        for user in Self.honestUsers {
            let peer = Self.honestUsers.first { $0 != user } ?? user
            let arguments = ["notifyd", "honest", bus.address, "\(peer)"] + Self.quiet
            honest.append(try ChildProcess(as: user, honestProgram, arguments, environment: environment))
        }
        for process in honest { try await process.line { $0 == "ready" } }
    }

    deinit {
        for process in honest { process.kill() }
        killNotifyd()
    }

    /// Writes a file that every user may read. Returns its path.
    @discardableResult
    private static func write(_ text: String, _ path: String) throws -> String {
        try text.write(toFile: path, atomically: true, encoding: .utf8)
        chmod(path, 0o644)
        return path
    }

    private var configurationFile: String { "\(directory.path)/notify.conf" }
    private var honestProgram: String { "\(directory.path)/honest-notifier" }
    private var environment: [String: String] {
        bus.environment.merging(["NOTIFY_CENTER_CONFIGURATION": configurationFile]) { $1 }
    }

    // MARK: notifyd

    /// Starts notifyd as the unit's user, and without rights if the unit gives none. On return it owns its name.
    func runNotifyd() async throws {
        let rights =
            unit.user == nil
            ? []
            : ChildProcess.identity(Self.notifydUser) + [
                "--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all",
            ]
        notifyd = try await startNotifyd(
            on: bus,
            ["--configuration", configurationFile],
            environment: environment,
            program: Self.program,
            by: ["nice", "-n", unit["Nice"] ?? "0", "setpriv"] + rights + ["--no-new-privs"]
        )
    }

    func killNotifyd() {
        notifyd?.kill()
        notifyd?.waitUntilExit()
    }

    // MARK: The hostile process

    func hostile(_ deed: String) throws -> ChildProcess {
        let processes = honest.map { "pid:\($0.identifier)" }
        return try ChildProcess(
            as: Self.hostileUser,
            ChildProcess.built("hostile-client"),
            ["notifyd", deed, bus.address, "honest.", "honest-notifier", "user.uid.0", "user.uid.2", "reserved."]
                + processes
        )
    }

    // MARK: Figures

    /// Runs `body`, and samples notifyd's resident memory during that time. Returns the median and the peak in bytes.
    func measureMemory<Value: Sendable>(
        _ body: () async throws -> Value
    ) async throws -> (Value, (median: Int, peak: Int)) {
        let notifyd = try #require(self.notifyd)
        let watch = Task {
            var samples: [Int] = []
            while !Task.isCancelled {
                samples.append(try notifyd.memory().resident)
                try? await Task.sleep(for: .milliseconds(25))
            }
            return samples.sorted()
        }
        defer { watch.cancel() }
        let value = try await body()
        watch.cancel()
        let samples = try await watch.value
        return (value, (samples[samples.count / 2], try notifyd.memory().peak))
    }

    /// Lets both honest processes measure at the same time.
    func measure(rounds: Int) async throws -> [RoundFigures] {
        let before = honest.map { $0.lines.count { $0.hasPrefix("figures") } }
        for process in honest { try process.write("measure \(rounds)") }
        var figures: [RoundFigures] = []
        for (process, before) in zip(honest, before) {
            try await eventually("an honest process has measured") {
                guard process.isRunning else { throw ChildProcess.Ended(process) }
                return process.lines.count { $0.hasPrefix("figures") } > before
            }
            let lines = process.lines
            let problems = lines.filter { $0.hasPrefix("failed") || $0.hasPrefix("wrong") }
            figures.append(RoundFigures(lines.last { $0.hasPrefix("figures") } ?? "", problems: problems))
        }
        return figures
    }
}

/// The measurements of one honest process; see `HonestProcess`.
struct RoundFigures: CustomStringConvertible {
    /// The operations that depend on notifyd: reading a state, registering a name and setting its state, a post to
    /// another process and back, a post that notifyd carries out.
    static let names = ["state", "set", "post", "reserved"]

    private let values: [String: Int]
    /// The failures and wrong results since the process began.
    let problems: [String]

    init(_ line: String, problems: [String]) {
        let pairs = line.split(separator: " ").map { $0.split(separator: "=") }.filter { $0.count == 2 }
        values = Dictionary(pairs.map { (String($0[0]), Int($0[1]) ?? -1) }) { $1 }
        self.problems = Array(problems.prefix(5))
    }

    /// A median, or the longest time if the name ends in `-worst`.
    subscript(name: String) -> Duration { .microseconds(values[name] ?? .max) }

    /// The number of measured rounds, or of failures or wrong results in them.
    func count(_ name: String) -> Int { values[name] ?? .max }

    /// The median and the longest time of each operation, in milliseconds.
    var description: String {
        let times = (Self.names + ["bus"]).map { name in
            let times = [name, "\(name)-worst"].map { String(format: "%.1f", Double(values[$0] ?? -1000) / 1000) }
            return "\(name) \(times.joined(separator: "/"))"
        }
        return times.joined(separator: ", ") + ", \(count("rounds")) rounds, \(count("failed")) failed"
    }
}

/// The processor time of the whole machine, and of this process with its descendants. In seconds.
struct ProcessorTime {
    private let moment = ContinuousClock.now
    private let all: Double
    private let own: Double

    init() throws {
        let line = try String(contentsOfFile: "/proc/stat", encoding: .utf8).prefix { $0 != "\n" }
        let times = line.split(separator: " ").dropFirst().prefix(8).compactMap { Double($0) }
        guard times.count == 8 else { throw CocoaError(.fileReadCorruptFile) }
        // Excludes idle and iowait.
        let busy = times.reduce(0, +) - times[3] - times[4]
        var parents: [Int32: Int32] = [:]
        var used: [Int32: Double] = [:]
        for process in try FileManager.default.contentsOfDirectory(atPath: "/proc").compactMap({ Int32($0) }) {
            // Skips a process that has just ended.
            guard let text = try? String(contentsOfFile: "/proc/\(process)/stat", encoding: .utf8) else { continue }
            let fields = text[(text.lastIndex(of: ")") ?? text.startIndex)...].split(separator: " ")
            guard fields.count > 13 else { continue }
            parents[process] = Int32(fields[2])
            used[process] = (Double(fields[12]) ?? 0) + (Double(fields[13]) ?? 0)
        }
        let ownTicks = used.reduce(0) { sum, process in
            var ancestor: Int32? = process.key
            while let next = ancestor, next != getpid() { ancestor = parents[next] }
            return sum + (ancestor == nil ? 0 : process.value)
        }
        let ticks = Double(sysconf(CInt(_SC_CLK_TCK)))
        (all, own) = (busy / ticks, ownTicks / ticks)
    }

    /// Returns how many processors other processes have used since then.
    func others(since earlier: ProcessorTime) -> Double {
        let passed = (moment - earlier.moment) / .seconds(1)
        return max(0, (all - earlier.all - (own - earlier.own)) / passed)
    }
}

struct Unit {
    private let settings: [String: String]

    init(contentsOf path: String) throws {
        let lines = try String(contentsOfFile: path, encoding: .utf8).split(separator: "\n")
        let pairs = lines.filter { !$0.hasPrefix("#") }.map { $0.split(separator: "=", maxSplits: 1) }
        settings = Dictionary(pairs.filter { $0.count == 2 }.map { (String($0[0]), String($0[1])) }) { $1 }
    }

    subscript(name: String) -> String? { settings[name] }

    /// `nil` if notifyd runs as root.
    var user: String? { settings["User"] }
    /// In bytes; `nil` for no limit.
    var memoryMax: Int? {
        guard let text = settings["MemoryMax"], let number = Int(text.prefix { $0.isNumber }) else { return nil }
        return number * (["K": 1 << 10, "M": 1 << 20, "G": 1 << 30][text.suffix(1)] ?? 1)
    }
}
