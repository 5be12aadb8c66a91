import Basics
import DBus
import FoundationEssentials
import Glibc
public import NotifyCenter
import Synchronization

/// A message bus for one test: a real bus daemon on a socket in a temporary directory. It ends when this object is
/// released.
///
/// ```swift
/// let bus = try PrivateBus()
/// let center = DarwinNotifyCenter(bus: bus.bus)
/// ```
public final class PrivateBus: Sendable {
    /// The bus program.
    public enum Daemon: String, Sendable {
        /// The reference implementation.
        case daemon = "dbus-daemon"
        /// The other widely used implementation. Without systemd, only root can start it. It does not count match rules
        /// by connection.
        case broker = "dbus-broker"

        /// The environment variable that ``chosen`` reads.
        public static let environmentVariable = "NOTIFY_CENTER_TEST_BUS"

        /// The daemon named by `NOTIFY_CENTER_TEST_BUS`; by default the reference implementation.
        public static var chosen: Daemon {
            ProcessInfo.processInfo.environment[environmentVariable].flatMap(Daemon.init) ?? .daemon
        }
    }

    /// The options of a bus.
    public struct Options: Sendable {
        /// The bus program.
        public var daemon = Daemon.chosen
        /// The maximum number of match rules of one connection; `nil` means the daemon's own limit.
        public var matchRulesPerConnection: Int?
        /// The number of bytes that dbus-daemon buffers for one sender or receiver; `nil` means its own limits.
        /// dbus-broker keeps up to 64 times as many for all receivers of one user together.
        public var bytesPerConnection: Int?
        /// Additional policy lines after “everything is allowed”, for instance `<deny send_interface="…"/>`.
        public var denials: [String]

        /// Services that the bus starts on demand: the command line for each bus name. Without systemd, dbus-broker
        /// starts none.
        public var services: [String: String]

        /// Further configuration files, by absolute path, for instance the policy that a service installs for the
        /// system bus. The daemon reads them last, so they take precedence.
        public var configurationFiles: [String] = []

        /// Replacements for the users in those files, because those users need not exist on this machine.
        public var standIns: [String: String] = [:]

        /// Whether other users may connect, as on a system bus; for tests that root runs. By default only this user
        /// may.
        public var admitsOtherUsers = false

        /// User ids that the bus knows in addition to the machine's users, because dbus-daemon only admits users with
        /// an entry in the user database. The bus then runs in a separate mount namespace, which only root can create.
        public var extraUsers: Range<UInt32> = 0..<0

        /// Creates the options of a session bus.
        public init(matchRulesPerConnection: Int? = nil, denials: [String] = [], services: [String: String] = [:]) {
            (self.matchRulesPerConnection, self.denials, self.services) = (matchRulesPerConnection, denials, services)
        }
    }

    /// The address, which a restart does not change.
    public let address: String
    private let directory: TemporaryDirectory
    private let program: Daemon
    private let admitsOtherUsers: Bool
    private let hasExtraUsers: Bool
    private let daemon = Locked<ChildProcess?>(nil)

    /// Starts a bus. On return it accepts connections; until then it blocks this thread.
    ///
    /// - Throws: ``ChildProcess/Failure`` if the daemon is not installed or accepts no connection within 60 seconds;
    ///   Foundation's error if a file cannot be read or written.
    public init(_ options: Options = Options()) throws {
        program = options.daemon
        admitsOtherUsers = options.admitsOtherUsers
        hasExtraUsers = !options.extraUsers.isEmpty
        directory = try TemporaryDirectory("notify-center-bus")
        address = "unix:path=\(directory.path)/bus"
        var options = options
        // Without stand-ins, the files are read in place, so that a test can change them before a restart.
        for (number, path) in options.configurationFiles.enumerated() where !options.standIns.isEmpty {
            let text = try String(contentsOfFile: path, encoding: .utf8)
            options.configurationFiles[number] = "\(directory.path)/\(number).conf"
            try options.standIns.reduce(text) { $0.replacing("user=\"\($1.key)\"", with: "user=\"\($1.value)\"") }
                .write(toFile: options.configurationFiles[number], atomically: true, encoding: .utf8)
        }
        try Self.configuration(options, address: address, services: servicesPath)
            .write(toFile: configurationPath, atomically: true, encoding: .utf8)
        if hasExtraUsers {
            let lines = options.extraUsers.map { "extra\($0):x:\($0):65534::/:/bin/false\n" }
            try (String(contentsOfFile: "/etc/passwd", encoding: .utf8) + lines.joined())
                .write(toFile: usersPath, atomically: true, encoding: .utf8)
            chmod(usersPath, 0o644)
        }
        if admitsOtherUsers { chmod(directory.path, 0o755) }
        try FileManager.default.createDirectory(atPath: servicesPath, withIntermediateDirectories: true)
        for (name, command) in options.services {
            try "[D-BUS Service]\nName=\(name)\nExec=\(command)\n"
                .write(toFile: "\(servicesPath)/\(name).service", atomically: true, encoding: .utf8)
        }
        try start()
    }

    deinit { stop() }

    /// The address for the notification centers.
    public var bus: Bus { .address(address) }

    /// The environment variables that make this bus the session bus and the centers' default in a child process.
    public var environment: [String: String] {
        ["DBUS_SESSION_BUS_ADDRESS": address, Bus.environmentVariable: address]
    }

    /// Kills the daemon (SIGKILL), as a crash would. On return it has ended, and all connections to it are lost.
    public func stop() {
        let child = daemon.withLock { daemon in
            defer { daemon = nil }
            return daemon
        }
        child?.kill()
        child?.waitUntilExit()
    }

    /// Suspends the daemon (SIGSTOP): it accepts connections, but reads and sends nothing. Only for dbus-daemon;
    /// dbus-broker has several processes.
    public func suspend() { daemon.withLock { $0 }?.suspend() }

    /// Resumes the daemon.
    public func resume() { daemon.withLock { $0 }?.resume() }

    /// Starts the daemon again after ``stop()``, at the same address. On return it accepts connections.
    ///
    /// - Throws: ``ChildProcess/Failure`` if the daemon is not installed, or, with its output, if it accepts no
    ///   connection within 60 seconds.
    public func start() throws {
        let deadline = ContinuousClock.now + .seconds(60)
        var child = try launch()
        while true {
            do {
                _ = try DBusConnection.open(bus)
                // Connecting requires write permission for the socket. dbus-daemon grants it to all users,
                // systemd-socket-activate only to its own.
                if admitsOtherUsers { chmod("\(directory.path)/bus", 0o666) }
                return
            } catch {
                guard ContinuousClock.now < deadline else {
                    stop()
                    throw ChildProcess.Failure(
                        "\(program.rawValue) does not take connections: \(error)\n\(child.errorText)"
                    )
                }
                if child.isRunning {
                    usleep(2_000)
                } else {
                    // There was no inotify instance left: the user's other processes hold them, and the kernel releases
                    // those of ended processes with a delay.
                    usleep(200_000)
                    child = try launch()
                }
            }
        }
    }

    private func launch() throws -> ChildProcess {
        // A killed daemon leaves its socket behind, and the next one does not reuse it.
        unlink("\(directory.path)/bus")
        let child =
            switch program {
            case .daemon:
                // Services inherit the daemon's environment, which has to name this bus, whatever this process's
                // environment says.
                try ChildProcess(
                    hasExtraUsers ? "unshare" : "dbus-daemon",
                    (hasExtraUsers ? ["--mount", "sh", "-e", "-c", Self.daemonScript, usersPath] : [])
                        + ["--nofork", "--nopidfile", "--config-file=\(configurationPath)"],
                    environment: environment
                )
            case .broker:
                try ChildProcess("unshare", ["--mount", "sh", "-e", "-c", Self.brokerScript, directory.path])
            }
        daemon.withLock { $0 = child }
        return child
    }

    /// Kills the daemon and starts it again, at the same address. Blocks this thread meanwhile; throws like
    /// ``start()``.
    public func restart() throws {
        stop()
        try start()
    }

    private static let daemonScript = """
        mount --bind "$0" /etc/passwd
        exec dbus-daemon "$@"
        """

    /// dbus-broker's launcher expects systemd to pass it a socket, and a journal to log to. This script provides both,
    /// with the journal in a separate mount namespace.
    ///
    /// A helper drains the journal's socket and ends with the launcher. If the helper ends before the socket exists,
    /// the script ends too, and ``start()`` runs it again. Without the helper, dbus-broker would block after about 100
    /// calls that its policy denies, because it logs each.
    private static let brokerScript = """
        mkdir -p /run/systemd
        mount -t tmpfs tmpfs /run/systemd
        mkdir /run/systemd/journal
        setpriv --pdeathsig KILL systemd-socket-activate -d -l /run/systemd/journal/socket \
            sh -c 'exec cat <&3 >/dev/null' &
        while [ ! -S /run/systemd/journal/socket ]; do kill -0 $!; sleep 0.01; done
        export XDG_RUNTIME_DIR="$0" DBUS_SESSION_BUS_ADDRESS="unix:path=$0/bus"
        exec systemd-socket-activate -E DBUS_SESSION_BUS_ADDRESS -E XDG_RUNTIME_DIR -l "$0/bus" \
            dbus-broker-launch --scope user --config-file "$0/bus.conf"
        """

    private var configurationPath: String { "\(directory.path)/bus.conf" }
    private var servicesPath: String { "\(directory.path)/services" }
    private var usersPath: String { "\(directory.path)/passwd" }

    private static func configuration(_ options: Options, address: String, services: String) -> String {
        let limits = [
            ("max_match_rules_per_connection", options.matchRulesPerConnection),
            ("max_incoming_bytes", options.bytesPerConnection), ("max_outgoing_bytes", options.bytesPerConnection),
        ].compactMap { name, value in value.map { "<limit name=\"\(name)\">\($0)</limit>" } }
        return """
            <!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
             "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
            <busconfig>
              <type>\(options.admitsOtherUsers ? "system" : "session")</type>
              <keep_umask/>
              <listen>\(address)</listen>
              <servicedir>\(services)</servicedir>
              <auth>EXTERNAL</auth>
              <policy context="default">
                <allow user="*"/>
                <allow own="*"/>
                <allow send_destination="*" eavesdrop="true"/>
                <allow send_type="signal"/>
                <allow send_type="method_call"/>
                <allow eavesdrop="true"/>
                \(options.denials.joined(separator: "\n    "))
              </policy>
              \(limits.joined(separator: "\n  "))
              \(options.configurationFiles.map { "<include>\($0)</include>" }.joined(separator: "\n  "))
            </busconfig>
            """
    }
}

/// The single bus of this test process, for code that takes its bus from the environment: the centers that Apple's
/// functions return, and notify(3). A suite that tests such code calls ``use()`` first.
@_spi(Extensions) public enum ProcessBus {
    private static let running = Locked<PrivateBus?>(nil)

    /// The bus's environment, which also becomes this process's environment. The bus starts with the first use;
    /// dbus-daemon starts notifyd on demand.
    @_spi(Extensions) public static let environment: [String: String] = {
        let options = PrivateBus.Options(services: ["org.notifycenter.Notifyd1": ChildProcess.built("notifyd")])
        // Without a bus there is nothing to test, so a crash of the test process is acceptable.
        let bus = try! PrivateBus(options)
        for (name, value) in bus.environment { setenv(name, value, 1) }
        running.withLock { $0 = bus }
        // Stops the daemon and removes its folder when this process ends.
        atexit { ProcessBus.running.withLock { $0 = nil } }
        return bus.environment
    }()

    @_spi(Extensions) public static func use() { _ = environment }
}
