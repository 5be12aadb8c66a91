import FoundationEssentials
import Glibc
import SharedDevice

/// A unit of systemd: of the machine's manager for root, of the user's own for others. It asks through `systemctl`.
package struct UnitControl: ProgramControl {
    package let name: String
    private let isSystem: Bool
    private let patience: StopPatience
    private let systemctl: String

    /// How long one question to the manager may take.
    private static let answerPatience = Duration.seconds(20)

    /// - Parameters:
    ///   - isSystem: whether the machine's manager is meant.
    ///   - systemctl: the program, looked up in `PATH`.
    package init(
        _ name: String,
        isSystem: Bool,
        patience: StopPatience = StopPatience(),
        systemctl: String = "systemctl"
    ) {
        self.name = name
        self.isSystem = isSystem
        self.patience = patience
        self.systemctl = systemctl
    }

    package func start() async throws(AdapterFailure) {
        try await command("start", remedy: "See what keeps it from starting: systemctl status \(name)")
    }

    package func stop() async throws(AdapterFailure) {
        let before = try await look()
        guard before.isLoaded || before.isActive else {
            throw AdapterFailure(
                "stop",
                name,
                "systemd knows no such unit",
                remedy: "Install it, or correct the name in the app's manifest"
            )
        }
        // Where the group was before: a unit that has stopped does not say.
        let group = before.group
        do throws(AdapterFailure) {
            // Without waiting: a unit may take as long as its own file says, and the next person waits.
            try await command("stop", ["--no-block"], remedy: "See systemctl status \(name)")
        } catch {
            // The kill below says what is left.
        }
        if try await holds(within: patience.asked, { () throws(AdapterFailure) in try await isStopped(group) }) {
            return
        }
        _ = try? await command("kill", ["--signal=SIGKILL"], remedy: "")
        if !group.isEmpty { ControlGroup.kill(group) }
        guard try await holds(within: patience.killed, { () throws(AdapterFailure) in try await isStopped(group) })
        else {
            let left = ControlGroup.processes(group).sorted().map(ProcessTree.describe)
            throw AdapterFailure(
                "stop",
                name,
                "it does not end, although it was killed; left: \(left.joined(separator: ", "))",
                remedy:
                    "A process that waits for a device cannot be killed: see ps -o pid,stat,wchan, and restart the device"
            )
        }
    }

    package func isStopped() async throws(AdapterFailure) -> Bool { try await isStopped("") }

    private func isStopped(_ group: String) async throws(AdapterFailure) -> Bool {
        let now = try await look()
        return !now.isActive && ControlGroup.isEmpty(group) && ControlGroup.isEmpty(now.group)
    }

    /// What systemd says of the unit.
    private struct View {
        var isLoaded = false
        /// Also while it starts or stops.
        var isActive = false
        /// Its control group; empty where it has none.
        var group = ""
    }

    private func look() async throws(AdapterFailure) -> View {
        let text = try await command(
            "show",
            ["--property=LoadState,ActiveState,ControlGroup"],
            remedy: "Is systemd running here?"
        )
        var view = View()
        for line in text.split(separator: "\n") {
            let parts = line.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
            switch parts.first {
            case "LoadState": view.isLoaded = parts.last != "not-found"
            case "ActiveState": view.isActive = !["inactive", "failed"].contains(parts.last ?? "")
            case "ControlGroup": view.group = parts.last ?? ""
            default: break
            }
        }
        return view
    }

    @discardableResult
    private func command(
        _ verb: String,
        _ options: [String] = [],
        remedy: String
    ) async throws(AdapterFailure) -> String {
        let arguments = (isSystem ? [] : ["--user"]) + [verb] + options + ["--", name]
        do throws(HelperProcess.Failure) {
            let (status, text) = try await HelperProcess.output(
                of: systemctl,
                arguments,
                patience: Self.answerPatience
            )
            guard status == 0 else {
                let reason =
                    text.split(separator: "\n").first.map(String.init) ?? "systemctl ended with \(status ?? -1)"
                throw HelperProcess.Failure(reason)
            }
            return text
        } catch {
            throw AdapterFailure(verb, name, error.description, remedy: remedy)
        }
    }
}

/// A control group of the kernel's, by its path in the hierarchy that systemd uses.
enum ControlGroup {
    /// Where the hierarchy may be mounted.
    private static let mounts = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd"]

    /// Whether no process is in it or below it. A group that is gone is empty.
    static func isEmpty(_ group: String) -> Bool { group.isEmpty || processes(group).isEmpty }

    /// The processes in it and below it.
    static func processes(_ group: String) -> [pid_t] {
        guard group.hasPrefix("/"), group != "/" else { return [] }
        return mounts.flatMap { mount -> [pid_t] in
            let root = mount + group
            let below = (try? FileManager.default.subpathsOfDirectory(atPath: root)) ?? []
            let files = ["cgroup.procs"] + below.filter { $0.hasSuffix("/cgroup.procs") }
            return files.flatMap { file in
                let text = (try? String(contentsOfFile: "\(root)/\(file)", encoding: .utf8)) ?? ""
                return text.split(separator: "\n").compactMap { pid_t($0) }
            }
        }
    }

    /// Kills what is in it.
    static func kill(_ group: String) {
        for process in processes(group) where process > 1 { _ = Glibc.kill(process, SIGKILL) }
    }
}
