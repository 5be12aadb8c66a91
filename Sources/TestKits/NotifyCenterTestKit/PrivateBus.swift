import DBusTransport
import Foundation
import Glibc
public import NotifyCenter
import Synchronization

/// A message bus of the test's own: a real bus daemon on a socket in a temporary directory, which ends with this object.
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
        /// The other one in wide use. Without systemd around, it starts for root only, and it does not count match rules by
        /// connection.
        case broker = "dbus-broker"

        /// The environment variable that ``chosen`` reads.
        public static let environmentVariable = "NOTIFY_CENTER_TEST_BUS"

        /// What `NOTIFY_CENTER_TEST_BUS` names; the reference daemon otherwise.
        public static var chosen: Daemon {
            ProcessInfo.processInfo.environment[environmentVariable].flatMap(Daemon.init) ?? .daemon
        }
    }

    /// What a test may want other than usual.
    public struct Options: Sendable {
        /// The program.
        public var daemon = Daemon.chosen
        /// The most match rules that one connection may have; `nil` for the daemon's own limit.
        public var matchRulesPerConnection: Int?
        /// Lines of policy beyond “everybody may do everything”, for instance `<deny send_interface="…"/>`.
        public var denials: [String]

        /// Services that the bus starts when somebody calls them: the command line for each bus name. dbus-broker starts none
        /// without systemd.
        public var services: [String: String]

        /// Files with further configuration, by absolute path, for instance the policy that a service installs for the system bus. They are
        /// read after all else, so that what they allow or deny counts.
        public var configurationFiles: [String] = []

        /// Whether other users may connect, as to a system bus; for tests that root runs. Otherwise only this one may.
        public var admitsOtherUsers = false

        /// A bus as a session has it.
        public init(matchRulesPerConnection: Int? = nil, denials: [String] = [], services: [String: String] = [:]) {
            self.matchRulesPerConnection = matchRulesPerConnection
            self.denials = denials
            self.services = services
        }
    }

    /// Where the bus listens; the same across restarts.
    public let address: String
    private let directory: TemporaryDirectory
    private let program: Daemon
    private let daemon = Locked<ChildProcess?>(nil)

    /// Starts a bus; it takes connections on return.
    ///
    /// - Throws: where the daemon is not installed or does not start.
    public init(_ options: Options = Options()) throws {
        program = options.daemon
        directory = try TemporaryDirectory("notify-center-bus")
        address = "unix:path=\(directory.path)/bus"
        try Self.configuration(options, address: address, services: servicesPath)
            .write(toFile: configurationPath, atomically: true, encoding: .utf8)
        if options.admitsOtherUsers { chmod(directory.path, 0o755) }
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
    public func start() throws { try start(attempts: 5) }

    private func start(attempts: Int) throws {
        // A killed daemon leaves its socket behind, and does not take it over.
        unlink("\(directory.path)/bus")
        let child =
            switch program {
            case .daemon:
                // What it starts inherits its environment, and is to find this bus, not one that this process was told to use.
                try ChildProcess(
                    "dbus-daemon",
                    ["--nofork", "--nopidfile", "--config-file=\(configurationPath)"],
                    environment: environment
                )
            case .broker:
                try ChildProcess("unshare", ["--mount", "sh", "-e", "-c", Self.brokerScript, directory.path])
            }
        daemon.withLock { $0 = child }
        let deadline = ContinuousClock.now + .seconds(20)
        while true {
            do {
                _ = try DBusConnection.open(bus)
                return
            } catch {
                guard child.isRunning, ContinuousClock.now < deadline else {
                    stop()
                    // Each daemon takes one of the user's inotify instances, which the kernel gives back with a delay: where many
                    // buses come and go, one may find none.
                    if attempts > 1 {
                        usleep(200_000)
                        return try start(attempts: attempts - 1)
                    }
                    throw ChildProcess.Failure(
                        "\(program.rawValue) does not take connections: \(error)\n\(child.errorText)"
                    )
                }
                usleep(2_000)
            }
        }
    }

    /// Ends the daemon and starts it again.
    public func restart() throws {
        stop()
        try start()
    }

    /// dbus-broker's launcher wants a socket handed over, as systemd does it, and a journal to log to. Both are made up, the
    /// journal in a mount namespace of its own; the helper that keeps it ends with the launcher.
    private static let brokerScript = """
        mkdir -p /run/systemd
        mount -t tmpfs tmpfs /run/systemd
        mkdir /run/systemd/journal
        setpriv --pdeathsig KILL systemd-socket-activate -d -l /run/systemd/journal/socket sleep infinity &
        while [ ! -S /run/systemd/journal/socket ]; do sleep 0.01; done
        export XDG_RUNTIME_DIR="$0" DBUS_SESSION_BUS_ADDRESS="unix:path=$0/bus"
        exec systemd-socket-activate -E DBUS_SESSION_BUS_ADDRESS -E XDG_RUNTIME_DIR -l "$0/bus" \
            dbus-broker-launch --scope user --config-file "$0/bus.conf"
        """

    private var configurationPath: String { "\(directory.path)/bus.conf" }
    private var servicesPath: String { "\(directory.path)/services" }

    private static func configuration(_ options: Options, address: String, services: String) -> String {
        let limit = options.matchRulesPerConnection.map {
            "<limit name=\"max_match_rules_per_connection\">\($0)</limit>"
        }
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
              \(limit ?? "")
              \(options.configurationFiles.map { "<include>\($0)</include>" }.joined(separator: "\n  "))
            </busconfig>
            """
    }
}
