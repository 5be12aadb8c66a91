import ArgumentParser
import Basics
import CommandParts
import DBus
import FoundationEssentials
import Glibc
import KioskScreen
import SharedDevice

@main
struct SharedDeviceScreenCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "shared-device-screen",
        abstract: "Warns the person at a shared device before the end, and shows the lock and the sign-in.",
        discussion: """
            Runs in the graphical session of a Wayland compositor, as the session's user. The broker says what to show: a warning with a countdown; \
            a lock, from which the person returns with a PIN, a password or a badge; with --sign-in, the sign-in with badge and PIN while \
            no person is signed in. A compositor with ext-session-lock-v1, such as sway 1.8 or later, hides all other programs meanwhile. With \
            wlr-layer-shell the cover is above all windows; with neither it is a window in full screen of a single output. Prints “ready” when it is \
            connected to the compositor. Ends with SIGTERM or SIGINT; a lock of ext-session-lock-v1 then stays.
            Exit status: 0 ended as asked; 64 wrong usage; 69 there is no bus, or the compositor has ended; 77 another such program shows \
            the screen of this device; 78 the session has no Wayland compositor that this program can use.
            """,
        version: ProjectVersion.line(of: "shared-device-screen")
    )

    @Flag(help: "Ask for a badge and a PIN while no person is signed in.")
    var signIn = false

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
        // A core dump would contain PINs. Not 0: if a program collects cores (a core_pattern with “|”), the kernel
        // ignores every limit but 1.
        var none = rlimit(rlim_cur: 1, rlim_max: 1)
        setrlimit(__rlimit_resource_t(RLIMIT_CORE.rawValue), &none)
        let end = try EndSignals()
        // At once, because a compositor that hangs blocks everything else. There is nothing to save.
        Task {
            await end.first()
            Glibc.exit(EXIT_SUCCESS)
        }
        do {
            let (requests, continuation) = AsyncStream.makeStream(
                of: ScreenRequest.self,
                bufferingPolicy: .bufferingOldest(1)
            )
            let language = Language(environment: ProcessInfo.processInfo.environment) ?? .english
            let screen = try CompositorScreen(ScreenState(asksForBadge: signIn), texts: Texts(language)) {
                continuation.yield($0)
            }
            let broker = try BrokerScreen(bus: bus.map(Bus.init(name:)) ?? .fromEnvironment, log: Self.warn)
            Self.warn("showing \(screen.interfaces)")
            print("ready")
            fflush(nil)
            Task {
                do {
                    try await broker.follow(screen)
                } catch {
                    Self.warn("\(error)")
                    // At once, as after a signal: the compositor keeps a lock.
                    Glibc.exit(EX_NOPERM)
                }
            }
            Task { for await request in requests { await broker.carryOut(request, on: screen) } }
            throw await screen.run()
        } catch {
            Self.warn("\(error)")
            throw ExitCode((error as? CompositorError)?.isUnsupported == true ? EX_CONFIG : EX_UNAVAILABLE)
        }
    }

    private static func warn(_ text: String) { _ = writeAll("shared-device-screen: \(text)\n", to: STDERR_FILENO) }
}
