import AppAdapters
import ArgumentParser
import DBusTransport
import DeviceConfiguration
import Dispatch
import FoundationEssentials
import Glibc
import SharedDevice
import SharedDeviceTestKit
import Synchronization

struct RunCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "run",
        abstract: "Runs a program that knows nothing of shared device mode, and cleans up after it.",
        discussion: """
            The program finds its home and its data directories below the directory of --data. After each session it is ended with all of its \
            processes, that directory is emptied, and the broker gets the receipt; then it is started again. It runs only while nothing is owed: \
            what a crash has left is deleted before the program starts. A program that ends by itself is not started again; the command then \
            waits until its user has signed out, and ends.
            """
    )

    @Option(help: ArgumentHelp("The app's identifier, such as org.example.browser.", valueName: "id"))
    var app: String

    @Option(
        help: ArgumentHelp(
            "The directory that is emptied after each session. It is made if it is missing.",
            valueName: "dir"
        )
    )
    var data: String

    @Option(help: ArgumentHelp("What is known of the program: \(AdapterPreset.names).", valueName: "name"))
    var preset: String?

    @Option(
        help: ArgumentHelp(
            "When the program runs: nobody (while nobody is signed in), signed-in, always.",
            valueName: "when"
        )
    )
    var start: String = AppCleanup.Start.always.rawValue

    @OptionGroup var bus: BusOptions

    @Argument(parsing: .captureForPassthrough, help: "The program and its arguments, after --.")
    var command: [String]

    func run() throws { try OtherThreads.run { [self] in try await follow() } }

    private func follow() async throws {
        let end = try EndSignals()
        let identifier = app
        let application = SharedDeviceApplication(identifier: identifier, bus: bus.bus)
        let plan: Plan
        let lock: RunLock?
        do {
            plan = try Plan(self, keeping: application.stateDirectory)
            lock = try RunLock(directory: application.stateDirectory)
        } catch {
            throw reported(error)
        }
        guard let lock else { return try emit("\(identifier) runs already, and is shown the request to start") }
        let (statuses, continuation) = AsyncStream.makeStream(of: Int32.self)
        let progress = RunProgress { continuation.yield($0) }
        let program = OwnedCommand(plan.settings) { status in
            if !progress.ended(status) {
                Self.say("\(plan.name) has ended; its data is deleted when its user has signed out")
            }
        }
        let adapter = Adapter(
            program: program,
            start: plan.start,
            paths: [plan.data],
            user: geteuid(),
            log: { Self.say($0) },
            shown: { progress.shown($0) }
        )
        let again = lock.onRequest {
            Task {
                do throws(AdapterFailure) {
                    try await adapter.startAgain {
                        program.allowStart()
                        progress.startsAgain()
                    }
                } catch {
                    Self.say("\(error)")
                    _ = progress.ended(EX_UNAVAILABLE)
                }
            }
        }
        let following = Task { try await adapter.follow(application) }
        let ending = Task {
            await end.first()
            continuation.yield(0)
        }
        var status: Int32 = 0
        for await first in statuses {
            status = first
            break
        }
        following.cancel()
        ending.cancel()
        _ = await following.result
        withExtendedLifetime((again, lock)) {}
        do throws(AdapterFailure) {
            try await program.stop()
        } catch {
            throw CommandFailure(status: EX_UNAVAILABLE, description: error.description)
        }
        if status != 0 { throw ExitCode(status) }
    }

    private func reported(_ error: any Error) -> any Error {
        Self.say("\(error)")
        return ExitCode((error as? CommandFailure)?.status ?? EX_USAGE)
    }

    static func say(_ line: String) { warn("run: \(line)") }
}

extension AdapterPreset {
    /// Those that `run` takes: a Flatpak's place is its own.
    fileprivate static var names: String {
        allCases.filter { $0 != .flatpak }.map(\.rawValue).joined(separator: ", ")
    }
}

/// What the command line means. It is checked before anything is started or deleted.
private struct Plan {
    let name: String
    let data: String
    let start: AppCleanup.Start
    let settings: OwnedCommand.Settings

    /// - Parameter state: the directory of the app's record, which has to outlast the deletion.
    init(_ options: RunCommand, keeping state: String) throws(CommandFailure) {
        func refuse(_ text: String) -> CommandFailure { CommandFailure(status: EX_USAGE, description: text) }
        guard AppIdentifier.isReverseDNS(options.app) else {
            throw refuse("“\(options.app)” is no identifier; write one such as org.example.browser")
        }
        guard let start = AppCleanup.Start(rawValue: options.start) else {
            throw refuse("--start is nobody, signed-in or always, and not “\(options.start)”")
        }
        self.start = start
        let words = options.command.first == "--" ? Array(options.command.dropFirst()) : options.command
        guard let program = words.first, !program.isEmpty else {
            throw refuse("write the program after --, for instance: -- chromium https://example.org")
        }
        name = program
        let preset: AdapterPreset?
        if let text = options.preset {
            guard let known = AdapterPreset(rawValue: text), known != .flatpak else {
                throw refuse("--preset is one of \(AdapterPreset.names), and not “\(text)”")
            }
            preset = known
        } else {
            preset = nil
        }
        let path = URL(fileURLWithPath: options.data).standardizedFileURL.path
        let home: String?
        do throws(SystemUser.LookupFailure) {
            home = try SystemUser(number: geteuid()).home
        } catch {
            throw CommandFailure(status: EX_UNAVAILABLE, description: "\(error)")
        }
        do throws(CleanupFlaw) {
            // By text before it is made, and by what it leads to before anything is deleted.
            _ = try CleanupPath.checked(path, home: home, keeping: [state])
            try? FileManager.default.createDirectory(
                atPath: path,
                withIntermediateDirectories: true,
                attributes: [.posixPermissions: 0o700]
            )
            data = try CleanupPath.checked(pathWithoutLinks(path), home: home, keeping: [pathWithoutLinks(state)])
            try preset?.check(data: data)
        } catch {
            throw CommandFailure(status: EX_USAGE, description: "--data: \(error)")
        }
        var settings = OwnedCommand.Settings(
            mark: state,
            command: [program] + (preset?.arguments(data: data) ?? []) + words.dropFirst()
        )
        settings.environment = AdapterEnvironment.variables(data: data).merging(preset?.environment ?? [:]) { $1 }
        settings.directories = AdapterEnvironment.directories(data: data) + (preset?.directories(data: data) ?? [])
        settings.markingWords = preset?.place(data: data) ?? []
        settings.restarts = false
        self.settings = settings
    }
}

/// Decides when the command is over: its program has ended by itself, and nobody's data is left.
private final class RunProgress: Sendable {
    private struct State {
        var status: Int32?
        var isClean = false
    }

    private let state = Locked(State())
    private let over: @Sendable (Int32) -> Void

    init(over: @escaping @Sendable (Int32) -> Void) { self.over = over }

    /// - Returns: whether the command is over.
    func ended(_ status: Int32) -> Bool { change { $0.status = status } }

    func shown(_ account: AccountState) { _ = change { $0.isClean = account == .nobody } }

    func startsAgain() { _ = change { $0.status = nil } }

    private func change(_ body: @Sendable (inout State) -> Void) -> Bool {
        let status = state.withLock { state in
            body(&state)
            return state.isClean ? state.status : nil
        }
        if let status { over(status) }
        return status != nil
    }
}

/// Keeps a second adapter of the same app away, and hands its wish to start the program to the first.
private final class RunLock {
    private let descriptor: CInt

    /// - Returns: `nil` where another process has the lock; that process was asked to start the program.
    init?(directory: String) throws(CommandFailure) {
        try? FileManager.default.createDirectory(
            atPath: directory,
            withIntermediateDirectories: true,
            attributes: [.posixPermissions: 0o700]
        )
        let path = "\(directory)/run.lock"
        descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard descriptor >= 0 else {
            throw CommandFailure(
                status: EX_CANTCREAT,
                description: "cannot open \(path): \(String(cString: strerror(errno))); give the directory to this user"
            )
        }
        // Before the lock: the signal would end a process that has the lock and does not handle it yet.
        signal(SIGUSR1, SIG_IGN)
        var lock = flock(l_type: Int16(F_WRLCK), l_whence: Int16(SEEK_SET), l_start: 0, l_len: 0, l_pid: 0)
        guard fcntl(descriptor, F_SETLK, &lock) != 0 else { return }
        guard errno == EAGAIN || errno == EACCES else {
            let reason = String(cString: strerror(errno))
            close(descriptor)
            throw CommandFailure(status: EX_OSERR, description: "cannot lock \(path): \(reason)")
        }
        if fcntl(descriptor, F_GETLK, &lock) == 0, lock.l_pid > 0 { kill(lock.l_pid, SIGUSR1) }
        return nil
    }

    deinit { close(descriptor) }

    /// Calls `body` when another process wants the program to start.
    func onRequest(_ body: @escaping @Sendable () -> Void) -> any DispatchSourceSignal {
        let source = DispatchSource.makeSignalSource(signal: SIGUSR1, queue: .global())
        source.setEventHandler(handler: body)
        source.activate()
        return source
    }
}
