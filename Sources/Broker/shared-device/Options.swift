import ArgumentParser
import Basics
import BrokerCore
import CommandParts
import DBus
import DeviceConfiguration
import DeviceStorage
import EmbeddedIdentity
import FoundationEssentials
import Glibc
import NotifyCenter
@_spi(Extensions) import SharedDevice
import SharedDeviceBroker

struct StateOptions: ParsableArguments {
    @Option(
        name: .customLong("state"),
        help: ArgumentHelp(
            "The state directory.",
            discussion: "By default $\(StateDirectory.environmentVariable); else /var/lib/shared-device for root; else "
                + "shared-device in $XDG_STATE_HOME or ~/.local/state.",
            valueName: "dir"
        )
    )
    var directory: String?

    var path: String {
        directory
            ?? StateDirectory.path(
                environment: ProcessInfo.processInfo.environment,
                effectiveUser: geteuid(),
                home: FileManager.default.homeDirectoryForCurrentUser.path
            )
    }

    func validate() throws {
        if directory?.isEmpty == true { throw ValidationError("--state needs the name of a directory") }
    }

    /// Opens the database as its owner. Root drops its rights permanently, so that every file that SQLite creates
    /// belongs to the broker's user, and that user cannot redirect root to another file by a link.
    func openDatabase(_ opening: DeviceDatabase.Opening) throws(StoreError) -> DeviceDatabase {
        // Computed before root drops its rights, because the default path depends on the user.
        let path = path
        var information = stat()
        if geteuid() == 0, stat(path, &information) == 0, information.st_uid != 0 {
            guard setgroups(0, nil) == 0, setgid(information.st_gid) == 0, setuid(information.st_uid) == 0 else {
                throw StoreError(
                    .noPermission,
                    attempted: "use \(path) as its owner, user \(information.st_uid)",
                    message: String(cString: strerror(errno)),
                    remedy: "run as that user"
                )
            }
        }
        return try DeviceDatabase(directory: path, opening)
    }
}

/// Explains why this command does not accept the option `--state` of other commands.
struct NoStateOption: ParsableArguments {
    @Option(name: .customLong("state"), help: .hidden)
    var directory: String?

    func validate() throws {
        guard directory == nil else {
            throw ValidationError("this command asks only the broker, and reads no state directory; leave out --state")
        }
    }
}

struct NameOptions: ParsableArguments {
    @Flag(
        name: .customLong("long"),
        help: "Show apps by whole identifiers, those without a manifest with program and user."
    )
    var isLong = false

    func name(_ key: String, _ names: AppNames) -> String { isLong ? key : names[key] }
}

extension AppNames {
    /// Includes all apps of a device, so that each command shows the same names.
    init(_ ledger: CleanupLedger, and others: some Sequence<String> = []) {
        let listed = ledger.parts.values.flatMap { $0.keys.map(\.app) }
        self.init(listed + others)
    }

    /// The key of the app with this displayed name, identifier or key; `nil` if there is none.
    ///
    /// - Throws: ``CommandFailure`` with the candidates if there are several.
    func key(for text: String) throws(CommandFailure) -> String? {
        let keys = keys(for: text)
        guard keys.count > 1 else { return keys.first }
        let candidates = keys.map { "\n  \(self[$0].printable)" }.joined()
        throw CommandFailure(EX_DATAERR, "several apps are called “\(text.printable)”; name one of them:\(candidates)")
    }
}

struct BusOptions: ParsableArguments {
    @Option(
        name: .customLong("bus"),
        help: ArgumentHelp(
            "The bus that the broker serves: session, system, or an address.",
            discussion: "By default $\(Bus.environmentVariable); else the session bus.",
            valueName: "bus"
        )
    )
    var name: String?

    var bus: Bus { name.map(Bus.init(name:)) ?? .fromEnvironment }

    func connect() throws(SharedDeviceError) -> BrokerAdministration { try BrokerAdministration(bus: bus) }
}

/// The broker's information beyond the database. Each part may be missing.
struct BrokerView {
    private(set) var information: BrokerProtocol.Fields?
    /// The running apps, and the problems of all apps.
    private(set) var apps: BrokerProtocol.Fields?
    private(set) var problem: String?

    /// The apps that have a process on the bus.
    var running: Set<String>? { apps?["apps"]?.stringsValue.map { Set($0) } }

    init(_ bus: BusOptions) {
        do throws(SharedDeviceError) {
            let administration = try bus.connect()
            let attempted = "ask the broker"
            information = try administration.callAndWait(.getDeviceInformation, nil, attempted: attempted)
            apps = try administration.callAndWait(.getRunningApps, attempted: attempted)
        } catch {
            problem = error.message
        }
    }
}

struct SignOutOptions: ParsableArguments {
    @Flag(
        name: .customLong("sign-out"),
        help: "If the user is signed in, have the broker first sign the user out and tell all apps."
    )
    var isWanted = false

    @OptionGroup var bus: BusOptions

    private static let patienceWithDisk = Duration.seconds(10)

    /// Signs the user out through the broker, if the option is given and the user is signed in. A user may sign in
    /// again before the command has finished its own work.
    func signOut(_ user: DirectoryUser, of database: DeviceDatabase, reason: String) throws {
        // Ask the broker even if no account is signed in on the disk: the write of a sign-in may be in flight.
        guard isWanted else { return }
        let identifier = user.account.identifier
        let unstored: UInt64?
        do throws(SharedDeviceError) {
            let broker = try BrokerAdministration(bus: bus.bus)
            let answer = try broker.callAndWait(
                .signOutAnyone,
                ["accountIdentifier": .string(identifier), "reason": .string(reason)],
                attempted: "sign \(user.account.username) out"
            )
            // If the disk is slow, the response arrives before the write. The command works from the disk.
            unstored = answer["stored"]?.booleanValue == false ? answer["epoch"]?.unsignedValue : nil
        } catch {
            // The user has signed out in between, or the broker on this bus serves another device.
            guard try DeviceStore.isSignedIn(user, database) else { return }
            guard [.noCurrentAccount, .currentAccountMismatch].contains(error.code) else { throw error }
            throw CommandFailure(
                EX_UNAVAILABLE,
                "\(user.account.username) is signed in, but not at the broker on this bus, which has another state "
                    + "directory; name the right bus with --bus"
            )
        }
        let deadline = ContinuousClock.now + Self.patienceWithDisk
        while let unstored, try DeviceStore.device(of: database).epoch < unstored, .now < deadline { usleep(50_000) }
    }
}

extension DeviceStore {
    static func isSignedIn(_ user: DirectoryUser, _ database: DeviceDatabase) throws -> Bool {
        try device(of: database).account?.hasIdentifier(user.account.identifier) == true
    }
}

/// Whether the path leads to a regular file.
func isFile(_ path: String) -> Bool {
    var information = stat()
    return stat(path, &information) == 0 && information.st_mode & S_IFMT == S_IFREG
}
