import Basics
import DBus
import Glibc
import NotifyCenter

/// notifyd's counters since its start.
struct Figures: Sendable {
    var calls: [NotifydProtocol.Method: UInt64] = [:]
    var refusals = 0
    /// Calls that notifyd dropped without a response, and relayed posts for which a receiver had no room.
    var dropped = 0
    var pathChanges: UInt64 = 0
}

/// notifyd's status as text for people. Pure.
struct StatusText {
    let process: UInt32
    let bus: String
    let configuration: String
    let reservations: Int
    /// `nil` if the reader may not know what other users do.
    let figures: Figures?
    let paths: PathWatcher.Figures
    let counts: (names: Int, permanent: Int, processes: Int)

    var text: String {
        var text = """
            notifyd, process \(process)
            bus: \(bus.quotedOnOneLine)
            configuration: \(configuration.quotedOnOneLine), reserved prefixes \(reservations)
            names: \(counts.names), permanent \(counts.permanent)
            processes: \(counts.processes)

            """
        guard let figures else { return text }
        let calls = figures.calls.map { ($0.key.rawValue, $0.value) }.sorted { $0.0 < $1.0 }
            .map { "\($0.0) \($0.1)" }
        text += """
            paths: \(paths.paths), watches \(paths.watches), changes posted \(figures.pathChanges)
            calls: \(calls.joined(separator: ", ")); refused \(figures.refusals), dropped \(figures.dropped)

            """
        return text
    }
}

/// The file to which a signal makes notifyd write its status (Rules, a.15).
enum StatusFile {
    /// Writes to the directory that systemd has made for the service, or to that of the login session. Without either,
    /// root uses the directory of the system.
    static func write(_ text: String) throws(Problem) {
        let runtime = ProcessEnvironment.value("RUNTIME_DIRECTORY") ?? ProcessEnvironment.value("XDG_RUNTIME_DIR") ?? ""
        let directory = runtime.isEmpty && geteuid() == 0 ? "/var/run" : runtime
        guard !directory.isEmpty else {
            throw Problem("could not write the status to a file: set XDG_RUNTIME_DIR to a directory of this user")
        }
        let path = "\(directory)/notifyd_\(getpid()).status"
        // Does not follow links, and does not wait for the reader of a pipe.
        let descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0o600)
        let code = errno
        guard descriptor >= 0 else { throw Problem(attempting: "write the status to \(path)", code) }
        defer { close(descriptor) }
        let error = writeAll(text, to: descriptor)
        guard error == 0 else { throw Problem(attempting: "write the status to \(path)", error) }
    }
}

/// Messages for people, one line each on standard error.
enum Diagnostics {
    static func write(_ text: String) { _ = writeAll(line(text), to: STDERR_FILENO) }

    /// Makes one printable line, so that quoted text of other processes cannot control a terminal.
    static func line(_ text: String) -> String {
        "notifyd: " + text.unicodeScalars.map { $0.isPrintable ? String($0) : " " }.joined() + "\n"
    }
}
