import Glibc

/// A private dbus-daemon in a temporary folder. The object's deallocation ends the daemon and removes the folder.
final class PrivateBus {
    let address: String

    private let folder: String
    private let daemon: ChildProcess
    private let errorLog: Int32
    private let listNames: Command

    /// Starts the daemon. Throws `.missingProgram` if `dbus-daemon` or `dbus-send` is not installed, `.systemCall`, and
    /// `.peer` if the daemon does not start.
    init() throws(BenchmarkError) {
        guard let program = bench.program("dbus-daemon"), let send = bench.program("dbus-send") else {
            throw BenchmarkError(.missingProgram, "dbus-daemon and dbus-send are needed (Debian: dbus, dbus-bin)")
        }
        let folder = try makeFolder(in: getenv("TMPDIR").map { String(cString: $0) } ?? "/tmp")
        do throws(BenchmarkError) {
            let configuration = "\(folder)/bus.conf"
            try writeText(Self.configuration(socket: "\(folder)/socket"), to: configuration)
            errorLog = open("\(folder)/log", O_WRONLY | O_CREAT | O_CLOEXEC, 0o600)
            guard errorLog >= 0 else { throw systemError("creating \(folder)/log", errno) }
            let command = Command(
                program: program,
                arguments: ["--config-file=\(configuration)", "--nofork", "--nopidfile", "--print-address=1"]
            )
            daemon = try ChildProcess(command, errors: errorLog)
            address = try daemon.line(before: monotonicNanoseconds() + patience)
            listNames = Command(
                program: send,
                arguments: [
                    "--session", "--print-reply=literal", "--dest=org.freedesktop.DBus", "/org/freedesktop/DBus",
                    "org.freedesktop.DBus.ListNames",
                ],
                environment: ["DBUS_SESSION_BUS_ADDRESS": address]
            )
        } catch {
            Self.remove(folder)
            throw error
        }
        self.folder = folder
    }

    deinit {
        daemon.stop()
        close(errorLog)
        Self.remove(folder)
    }

    /// Waits until the daemon has removed every client that has ended, so that the next measurement does not include
    /// the removal of their rules. `clients` is the number of clients that stay connected.
    func settle(clients: Int = 0) throws(BenchmarkError) {
        let deadline = monotonicNanoseconds() + patience
        while true {
            let query = try ChildProcess(listNames)
            let names = try query.remainder(before: deadline).split { $0 == " " || $0 == "\n" }
            // The query counts itself.
            let connected = names.count(where: { $0.hasPrefix(":") }) - 1
            if connected == clients { return }
            guard monotonicNanoseconds() < deadline else {
                throw BenchmarkError(.peer, "the bus still has \(connected) clients, \(clients) expected")
            }
        }
    }

    private static func remove(_ folder: String) {
        for file in ["bus.conf", "socket", "log"] { unlink("\(folder)/\(file)") }
        rmdir(folder)
    }

    /// Limits that no benchmark reaches: for rules because of the registrations, for bytes because the daemon would
    /// slow down or disconnect a receiver that falls behind a flood.
    private static func configuration(socket: String) -> String {
        let limits = [
            ("max_incoming_bytes", 1_000_000_000), ("max_outgoing_bytes", 1_000_000_000),
            ("max_message_size", 1_000_000_000), ("max_completed_connections", 10_000),
            ("max_incomplete_connections", 10_000), ("max_connections_per_user", 10_000),
            ("max_match_rules_per_connection", 500_000), ("max_replies_per_connection", 500_000),
            ("auth_timeout", 60_000),
        ]
        let lines = limits.map { "  <limit name=\"\($0)\">\($1)</limit>" }.joined(separator: "\n")
        return """
            <!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
             "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
            <busconfig>
              <type>session</type>
              <listen>unix:path=\(socket)</listen>
              <auth>EXTERNAL</auth>
              <policy context="default">
                <allow send_destination="*"/>
                <allow receive_sender="*"/>
                <allow own="*"/>
              </policy>
            \(lines)
            </busconfig>

            """
    }
}

/// How long a peer or the bus may be silent before a measurement fails, in nanoseconds.
let patience = 60_000_000_000
