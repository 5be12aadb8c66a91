import FoundationEssentials
import Glibc
@_spi(Extensions) import SharedDevice

/// A systemd unit: of the system manager for root, else of the user manager. Uses `systemctl`.
package struct UnitControl: ProgramControl {
    package let name: String
    private let isSystem: Bool
    private let patience: StopPatience
    private let systemctl: String

    private static let answerPatience = Duration.seconds(20)
    private static let pause = Duration.milliseconds(50)

    package init(
        _ name: String,
        isSystem: Bool,
        patience: StopPatience = StopPatience(),
        systemctl: String = "systemctl"
    ) {
        (self.name, self.isSystem) = (name, isSystem)
        (self.patience, self.systemctl) = (patience, systemctl)
    }

    package func start() async throws(AdapterFailure) {
        try await command("start", remedy: "See what keeps it from starting: systemctl status \(name)")
    }

    package func stop() async throws(AdapterFailure) {
        let before = try await look()
        guard before.isLoaded || before.isActive else {
            let remedy = "Install it, or correct the name in the app's manifest"
            throw AdapterFailure("stop \(name): systemd knows no such unit", remedy: remedy)
        }
        let group = ControlGroup(before.group)
        do throws(AdapterFailure) {
            // Does not block: a unit's own stop timeout may be long, and the next user is waiting.
            try await command("stop", ["--no-block"], remedy: "See systemctl status \(name)")
        } catch {
            // The kill below reports the remaining processes.
        }
        if try await ends(group, within: patience.asked) { return }
        _ = try? await command("kill", ["--signal=SIGKILL"], remedy: "")
        guard try await ends(group, within: patience.killed, kills: true) else {
            throw .isKilled(name, left: (try? await onSystemThread(group.processes)) ?? [])
        }
    }

    package func isStopped() async throws(AdapterFailure) -> Bool { try await isStopped(nil) }

    /// - Parameter former: the unit's control group while it ran. systemd does not report the group of a stopped unit.
    private func isStopped(_ former: ControlGroup?) async throws(AdapterFailure) -> Bool {
        let now = try await look()
        guard !now.isActive else { return false }
        let groups = [former, ControlGroup(now.group)].compactMap { $0 }
        return try await onSystemThread { () throws(AdapterFailure) in
            for group in groups where try !group.isEmpty() { return false }
            return true
        }
    }

    /// Waits for the end of the processes, and then for the unit's stop commands.
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
            // Each call starts a program, hence the pause. Not cancelled with its task: a cleanup that has begun must
            // finish.
            await Task { try? await Task.sleep(for: Self.pause) }.value
        }
    }

    private struct View {
        var isLoaded = false
        /// True also while it starts or stops.
        var isActive = false
        /// Its control group; empty if it has none.
        var group = ""
    }

    private func look() async throws(AdapterFailure) -> View {
        let text = try await command(
            "show",
            ["--property=LoadState,ActiveState,ControlGroup"],
            remedy: "Check that systemd runs"
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
            let (status, text) = try await HelperProcess.output(of: systemctl, arguments, patience: Self.answerPatience)
            guard status == 0 else {
                throw HelperProcess.Failure(text.firstLine ?? "systemctl ended with \(status ?? -1)")
            }
            return text
        } catch {
            throw AdapterFailure("\(verb) \(name): \(error.description)", remedy: remedy)
        }
    }
}
