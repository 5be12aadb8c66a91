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
    /// Between two questions.
    private static let pause = Duration.milliseconds(50)

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
        let group = ControlGroup(before.group)
        do throws(AdapterFailure) {
            // Without waiting: a unit may take as long as its own file says, and the next person waits.
            try await command("stop", ["--no-block"], remedy: "See systemctl status \(name)")
        } catch {
            // The kill below says what is left.
        }
        if try await ends(group, within: patience.asked) { return }
        _ = try? await command("kill", ["--signal=SIGKILL"], remedy: "")
        guard try await ends(group, within: patience.killed, kills: true) else {
            let left = try? await onSystemThread(group.processes)
            throw AdapterFailure(
                "stop",
                name,
                "it does not end, although it was killed; left: \((left ?? []).sorted().map(ProcessTree.describe).joined(separator: ", "))",
                remedy:
                    "A process that waits for a device cannot be killed: see ps -o pid,stat,wchan, and restart the device"
            )
        }
    }

    package func isStopped() async throws(AdapterFailure) -> Bool { try await isStopped(nil) }

    /// - Parameter former: where the unit's processes were; a unit that has stopped does not say.
    private func isStopped(_ former: ControlGroup?) async throws(AdapterFailure) -> Bool {
        let now = try await look()
        guard !now.isActive else { return false }
        let groups = [former, ControlGroup(now.group)].compactMap { $0 }
        return try await onSystemThread { () throws(AdapterFailure) in
            for group in groups where try !group.isEmpty() { return false }
            return true
        }
    }

    /// Waits for the end of the processes, and then for what the unit does after them.
    private func ends(
        _ group: ControlGroup,
        within patience: Duration,
        kills: Bool = false
    ) async throws(AdapterFailure) -> Bool {
        let deadline = ContinuousClock.now + patience
        while true {
            try await onSystemThread { () throws(AdapterFailure) in
                if kills { try group.kill() }
                try group.waitUntilEmpty(until: deadline)
            }
            if try await isStopped(group) { return true }
            guard ContinuousClock.now < deadline else { return false }
            // Each question is a program's run. Not cancelled with its task: a cleanup that has begun goes on.
            await Task { try? await Task.sleep(for: Self.pause) }.value
        }
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
