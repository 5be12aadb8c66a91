import Basics
import CommandParts
import FoundationEssentials
@_spi(Extensions) import SharedDevice

/// The command that warns the person before the session ends by itself: a shell command, run for each warning, and
/// ended when the warning is over. If its last line is `stay`, the person is active.
struct EndingProgram: Sendable {
    /// How long the command may take to end after SIGTERM.
    private static let grace = Duration.seconds(2)
    /// More than any warning lasts.
    private static let patience = Duration.seconds(366 * 86_400)
    private static let longestOutput = 4096

    let command: String
    let application: SharedDeviceApplication

    /// Follows the warnings until the task is cancelled.
    func run() async {
        var running: Task<Void, Never>?
        for await end in application.sessionWarnings {
            running?.cancel()
            await running?.value
            running = nil
            guard let end else { continue }
            running = Task { await show(end) }
        }
        running?.cancel()
        await running?.value
    }

    private func show(_ end: SessionEnd) async {
        var settings = HelperProcess.Settings()
        let seconds = max(0, end.at.timeIntervalSinceNow.rounded())
        settings.environment["SHARED_DEVICE_END_REASON"] = end.reason.rawValue
        settings.environment["SHARED_DEVICE_END_LOCKS"] = end.locks ? "yes" : ""
        settings.environment["SHARED_DEVICE_ENDS_AT"] = "\(Int64(end.at.timeIntervalSince1970.rounded()))"
        settings.environment["SHARED_DEVICE_ENDS_IN"] = "\(Int64(seconds))"
        let texts = Texts(Language(environment: settings.environment) ?? .english)
        let time = String(Form.time(end.at).dropFirst(11).prefix(5))
        settings.environment["SHARED_DEVICE_END_NOTICE"] = texts.notice(of: end, at: time)
        settings.environment["SHARED_DEVICE_END_STAY"] = end.reason == .inactivity ? texts["ending.stay"] : ""
        settings.errors = .inherited
        settings.leadsGroup = true
        do throws(HelperProcess.Failure) {
            let (status, text) = try await HelperProcess.output(
                of: "/bin/sh",
                ["-c", command],
                settings,
                withErrors: false,
                limit: Self.longestOutput,
                within: HelperProcess.Patience(Self.patience, grace: Self.grace)
            )
            guard !Task.isCancelled else { return }
            guard status == 0 else { return warn("the command of --ending ended with status \(status ?? -1)") }
            if text.split(separator: "\n").last == "stay" { application.noteActivity() }
        } catch {
            warn("the command of --ending: \(error)")
        }
    }
}
