import ArgumentParser
import Basics
import DBus
import Glibc
import SeatInput
import SharedDevice

@main
struct SharedDeviceActivityCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "shared-device-activity",
        abstract: "Tells the broker of a shared device that a person uses it, while there is input.",
        discussion: """
            Runs in the graphical session, as the session's user. The broker learns only that the device is in use, at most every three seconds, and \
            signs the person out when the reports have been missing for inactivityTimeout. The input is seen by ext-idle-notify-v1 or \
            org_kde_kwin_idle (Wayland), by Mutter's idle monitor (GNOME) or by MIT-SCREEN-SAVER (X), whichever the session has. Prints “ready” \
            when it sees the input. Ends with SIGTERM or SIGINT.
            Exit status: 0 ended as asked; 64 wrong usage; 69 there is no bus, or the session has ended or does not respond; 78 the \
            session has none of these interfaces.
            """,
        version: ProjectVersion.line(of: "shared-device-activity")
    )

    @Option(
        help: ArgumentHelp(
            "The bus that the broker serves: session, system, or an address.",
            discussion: "By default $\(Bus.environmentVariable); else the session bus.",
            valueName: "bus"
        )
    )
    var bus: String?

    func run() async throws {
        signal(SIGPIPE, SIG_IGN)
        let end = try EndSignals()
        // At once, because a display server that hangs blocks everything else. There is nothing to save.
        Task {
            await end.first()
            Glibc.exit(EXIT_SUCCESS)
        }
        do {
            let input = try await SessionInput.open()
            let reports = try ActivityReports(
                of: input,
                to: bus.map(Bus.init(name:)) ?? .fromEnvironment,
                log: Self.warn
            )
            Self.warn("following the input by \(input.name)")
            print("ready")
            fflush(nil)
            try await reports.run()
        } catch {
            Self.warn("\(error)")
            throw ExitCode((error as? SeatInputError)?.isUnsupported == true ? EX_CONFIG : EX_UNAVAILABLE)
        }
    }

    private static func warn(_ text: String) { _ = writeAll("shared-device-activity: \(text)\n", to: STDERR_FILENO) }
}
