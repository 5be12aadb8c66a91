import AppAdapters
import ArgumentParser
import Basics
import CLinux
import DBus
import DeviceConfiguration
import Glibc
import SharedDevice

@main
struct SharedDeviceCleanupCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "shared-device-cleanup",
        abstract: "Cleans up for a program that does not support shared device mode.",
        discussion: """
            The unit shared-device-cleanup@APP.service runs it for the app whose manifest has the key “cleanup”, and the unit \
            shared-device-enforcement.service for all apps that are late. Ends with SIGTERM or SIGINT.
            Exit status: 0 ended as asked; 64 wrong usage; 75 the bus is lost (enforce); 78 the directory of manifests cannot be used.
            """,
        version: ProjectVersion.line(of: "shared-device-cleanup"),
        subcommands: [
            FollowCommand.self, EnforceCommand.self, HomeCommand.self, RemoveCommand.self, LaunchCommand.self,
        ],
        defaultSubcommand: FollowCommand.self
    )
}

/// The options of both commands that clean up.
struct CleanupOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "The bus: session, system, or an address.",
            discussion: "Otherwise the system bus for root, and the environment's for others.",
            valueName: "bus"
        )
    )
    var bus: String?

    @Option(help: ArgumentHelp("The directory of the manifests.", valueName: "dir"))
    var apps: String = AppManifestDirectory.defaultPath

    var isRoot: Bool { geteuid() == 0 }
    var chosenBus: Bus { bus.map(Bus.init(name:)) ?? (isRoot ? .system : .fromEnvironment) }

    /// - Returns: the signals that end this process, and the manifests as they change.
    func begin() throws -> (EndSignals, AsyncStream<AppManifests>) {
        // Must run before any thread is started, because children switch to another user.
        signal(SIGPIPE, SIG_IGN)
        let end = try EndSignals()
        do {
            // On a user's own bus the manifests, and the data that they name, belong to that user.
            return (end, try AppManifestDirectory(path: apps, mustBeRoots: isRoot && chosenBus == .system).updates())
        } catch {
            log("\(error)")
            throw ExitCode(EX_CONFIG)
        }
    }
}

struct FollowCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "follow",
        abstract: "Cleans up after each session, for one app."
    )

    @Argument(help: ArgumentHelp("The app's identifier, as in its manifest.", valueName: "app"))
    var app: String

    @OptionGroup var options: CleanupOptions

    @Option(
        name: .customLong("state"),
        help: ArgumentHelp(
            "The directory of the app's record of the sessions whose data it holds.",
            discussion: "Otherwise \(AppCleanup.stateDirectory)/APP for root, and APP in $XDG_STATE_HOME for others.",
            valueName: "dir"
        )
    )
    var stateDirectory: String?

    func run() async throws {
        let (end, updates) = try options.begin()
        let service = AdapterService(
            app: app,
            bus: options.chosenBus,
            stateDirectory: stateDirectory ?? (options.isRoot ? "\(AppCleanup.stateDirectory)/\(app)" : nil)
        )
        let following = Task { await service.follow(updates) }
        await end.first()
        following.cancel()
        await following.value
    }
}

struct EnforceCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "enforce",
        abstract: "Stops apps whose cleanup is late, and deletes their data.",
        discussion: """
            Implements the cleanup policy “enforced”. The broker names the apps whose cleanup is late. Their manifests name what to stop \
            and to delete. On the system bus the broker accepts only root's unit shared-device-enforcement.service as this program.
            """
    )

    @OptionGroup var options: CleanupOptions

    @Option(
        name: .customLong("state"),
        help: ArgumentHelp(
            "The directory that has the adapters' records, each in a directory of its app's identifier.",
            discussion: "Otherwise \(AppCleanup.stateDirectory) for root, and $XDG_STATE_HOME for others.",
            valueName: "dir"
        )
    )
    var stateDirectory: String?

    func run() async throws {
        let (end, updates) = try options.begin()
        let bus = options.chosenBus
        let directory = stateDirectory ?? (options.isRoot ? AppCleanup.stateDirectory : nil)
        let enforcer: Enforcer
        do {
            enforcer = try Enforcer(
                bus: bus,
                mark: { app in
                    let own = directory.map { "\($0)/\(app)" }
                    return SharedDeviceApplication(identifier: app, bus: bus, stateDirectory: own).stateDirectory
                },
                log: log
            )
        } catch {
            log("\(error)")
            throw ExitCode(EX_TEMPFAIL)
        }
        Task {
            await enforcer.run(updates)
            // Exits at once, without waiting for deletions in flight: those could delete the data of a user who signs
            // in later.
            _exit(EX_TEMPFAIL)
        }
        await end.first()
    }
}

struct HomeCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "home",
        abstract: "Deletes the content of a person's home directory after the person's Linux session.",
        discussion: """
            For “shared-device follow --cleanup” as root, with the identity “login-session”. Nothing is deleted while a process of \
            the user runs; it waits for half a minute. Home directories of root and of the system's users are refused.
            Prints what was deleted. Exit status: 0 nothing is left; 65 it is refused; 74 something is left, or processes run.
            """
    )

    @Argument(help: ArgumentHelp("The account, as in $SHARED_DEVICE_ACCOUNT: uid-NUMBER.TENANT.", valueName: "account"))
    var account: String

    func run() async throws {
        do {
            guard let number = HomeDeletion.user(ofAccount: account) else {
                log(
                    "“\(account.printable)” is no account of the identity “login-session”; see the managed configuration"
                )
                throw ExitCode(EX_DATAERR)
            }
            print(try await HomeDeletion(of: SystemUser(number: number)).run())
        } catch let error as ValueFlaw {
            log("\(error)")
            throw ExitCode(EX_DATAERR)
        } catch let error as AdapterFailure {
            log("\(error)")
            throw ExitCode(EX_IOERR)
        }
    }
}

struct RemoveCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "remove",
        abstract: "Deletes paths as one user. The adapter starts it.",
        shouldDisplay: false
    )

    @Option var user: UInt32
    @Argument var paths: [String]

    func run() throws {
        do {
            try UserRights.take(SystemUser(number: user))
            _ = CLinux_takeNoNewRights()
            print(try Deletion(paths: paths, user: user).runHere().line)
        } catch {
            print(error)
            throw ExitCode(EX_IOERR)
        }
    }
}

struct LaunchCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "launch",
        abstract: "Becomes one user, makes directories, and becomes a command. The adapter starts it.",
        shouldDisplay: false
    )

    @Option var user: UInt32
    @Option var directory: [String] = []
    @Argument var command: [String]

    func run() throws {
        do {
            try UserRights.take(SystemUser(number: user))
            try ProgramDirectories.make(directory)
        } catch {
            log("\(error)")
            throw ExitCode(EX_CANTCREAT)
        }
        var words = command.map { strdup($0) } + [nil]
        // This thread may block signals. The command would inherit the mask, and SIGTERM could not end it.
        var none = sigset_t()
        sigemptyset(&none)
        pthread_sigmask(SIG_SETMASK, &none, nil)
        execvp(command[0], &words)
        log("\(command[0]) does not start: \(String(cString: strerror(errno)))")
        throw ExitCode(EX_UNAVAILABLE)
    }
}

/// Writes a line for the administrator. The line is lost if standard error is closed.
@Sendable func log(_ line: String) {
    let line = Array("shared-device-cleanup: \(line)\n".utf8)
    _ = write(STDERR_FILENO, line, line.count)
}
