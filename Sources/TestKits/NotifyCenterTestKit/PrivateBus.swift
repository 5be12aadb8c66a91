import DBusTransport
import FoundationEssentials
import Glibc
public import NotifyCenter
import Synchronization

/// A message bus for one test: a real bus daemon on a socket in a temporary directory. It ends when this object goes.
///
/// ```swift
/// let bus = try PrivateBus()
/// let center = DarwinNotifyCenter(bus: bus.bus)
/// ```
public final class PrivateBus: Sendable {
    /// Which program the bus is.
    public enum Daemon: String, Sendable {
        /// The reference daemon.
        case daemon = "dbus-daemon"
        /// The other one in wide use. Without systemd, only root can start it. It does not count match rules by connection.
        case broker = "dbus-broker"

        /// The environment variable that ``chosen`` reads.
        public static let environmentVariable = "NOTIFY_CENTER_TEST_BUS"

        /// The daemon that `NOTIFY_CENTER_TEST_BUS` names; the reference daemon if it names none.
        public static var chosen: Daemon {
            ProcessInfo.processInfo.environment[environmentVariable].flatMap(Daemon.init) ?? .daemon
        }
    }

    /// What a test may want to be different.
    public struct Options: Sendable {
        /// The program.
        public var daemon = Daemon.chosen
        /// The most match rules that one connection may have; `nil` for the daemon's own limit.
        public var matchRulesPerConnection: Int?
        /// How many bytes of one sender, or for one receiver, dbus-daemon holds; `nil` for its own limits. dbus-broker passes over it.
        public var bytesPerConnection: Int?
        /// Lines of policy beyond “everybody may do everything”, for instance `<deny send_interface="…"/>`.
        public var denials: [String]

        /// Services that the bus starts when somebody calls them: the command line for each bus name. Without systemd, dbus-broker starts
        /// none.
        public var services: [String: String]

        /// Files with further configuration, by absolute path, for instance the policy that a service installs for the system bus. The
        /// daemon reads them last, so that they overrule the rest.
        public var configurationFiles: [String] = []

        /// Who stands for a user whom those files name, because that user need not exist here.
        public var standIns: [String: String] = [:]

        /// Whether other users may connect, as to a system bus; for tests that root runs. By default only this user may.
        public var admitsOtherUsers = false

        /// Users whom the bus knows beside those of the machine, because dbus-daemon admits only users that have an entry in the user database.
        /// The bus then runs in a mount namespace of its own, which root alone can make.
        public var extraUsers: Range<UInt32> = 0..<0

        /// A bus like that of a session.
        public init(matchRulesPerConnection: Int? = nil, denials: [String] = [], services: [String: String] = [:]) {
            self.matchRulesPerConnection = matchRulesPerConnection
            self.denials = denials
            self.services = services
        }
    }

    /// Where the bus listens. A restart does not change it.
    public let address: String
    private let directory: TemporaryDirectory
    private let program: Daemon
    private let admitsOtherUsers: Bool
    private let hasExtraUsers: Bool
    private let daemon = Locked<ChildProcess?>(nil)

    /// Starts a bus; it takes connections on return.
    ///
    /// - Throws: an error if the daemon is not installed or does not start.
    public init(_ options: Options = Options()) throws {
        program = options.daemon
        admitsOtherUsers = options.admitsOtherUsers
        hasExtraUsers = !options.extraUsers.isEmpty
        directory = try TemporaryDirectory("notify-center-bus")
        address = "unix:path=\(directory.path)/bus"
        var options = options
        // A file without stand-ins is read where it is: a test may change it before a restart.
        for (number, path) in options.configurationFiles.enumerated() where !options.standIns.isEmpty {
            let text = try String(contentsOfFile: path, encoding: .utf8)
            options.configurationFiles[number] = "\(directory.path)/\(number).conf"
            try options.standIns.reduce(text) {
                $0.replacing("user=\"\($1.key)\"", with: "user=\"\($1.value)\"")
            }.write(toFile: options.configurationFiles[number], atomically: true, encoding: .utf8)
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

    /// The bus, as the centers take it.
    public var bus: Bus { .address(address) }

    /// The environment in which a child process finds this bus as its session bus and as the centers' default.
    public var environment: [String: String] {
        ["DBUS_SESSION_BUS_ADDRESS": address, Bus.environmentVariable: address]
    }

    /// Ends the daemon as a crash would (SIGKILL). Connections to it are lost.
    public func stop() {
        let child = daemon.withLock { daemon in
            defer { daemon = nil }
            return daemon
        }
        child?.kill()
        child?.waitUntilExit()
    }

    /// Stops the daemon where it stands (SIGSTOP): it takes connections, and reads and answers nothing. On dbus-daemon alone; the other
    /// runs as several processes.
    public func suspend() { daemon.withLock { $0 }?.suspend() }

    /// Lets it go on.
    public func resume() { daemon.withLock { $0 }?.resume() }

    /// Starts the daemon again, at the same address.
    ///
    /// - Throws: ``ChildProcess/Failure`` with what the daemon wrote, if it takes no connection within 60 seconds.
    public func start() throws {
        let deadline = ContinuousClock.now + .seconds(60)
        var child = try launch()
        while true {
            do {
                _ = try DBusConnection.open(bus)
                // Only who may write to a socket may connect; dbus-daemon lets all, systemd-socket-activate its own user.
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
                    // It found no inotify instance: the user's other processes hold them, and the kernel takes back those of ended
                    // processes with a delay.
                    usleep(200_000)
                    child = try launch()
                }
            }
        }
    }

    private func launch() throws -> ChildProcess {
        // A killed daemon leaves its socket behind, and the next one does not take it over.
        unlink("\(directory.path)/bus")
        let child =
            switch program {
            case .daemon:
                // Services inherit the daemon's environment; it has to name this bus, whatever this process was told to use.
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

    /// Ends the daemon and starts it again.
    public func restart() throws {
        stop()
        try start()
    }

    private static let daemonScript = """
        mount --bind "$0" /etc/passwd
        exec dbus-daemon "$@"
        """

    /// dbus-broker's launcher expects systemd to pass it a socket, and a journal to log to. This script provides both, the journal in a mount
    /// namespace of its own. The helper that reads the journal's socket ends with the launcher; where it ends before, the script does, and is
    /// started anew. If nobody read that socket, dbus-broker would stand still after some 100 calls that its policy denies: it logs each.
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

/// The one bus of this test process, for code that takes its bus from the environment: the centers that Apple's functions return, and
/// notify(3). A suite that tests such code calls ``use()`` first.
package enum ProcessBus {
    private static let running = Locked<PrivateBus?>(nil)

    /// The bus's environment, which is also this process's from then on. The bus starts with the first use; dbus-daemon starts notifyd when
    /// somebody calls it.
    package static let environment: [String: String] = {
        let options = PrivateBus.Options(services: ["org.notifycenter.Notifyd1": ChildProcess.built("notifyd")])
        // Without a bus there is nothing to test: ending the test process is a fair result.
        let bus = try! PrivateBus(options)
        for (name, value) in bus.environment { setenv(name, value, 1) }
        running.withLock { $0 = bus }
        // The daemon and its folder go with this process.
        atexit { ProcessBus.running.withLock { $0 = nil } }
        return bus.environment
    }()

    /// Makes sure that it runs.
    package static func use() { _ = environment }
}
