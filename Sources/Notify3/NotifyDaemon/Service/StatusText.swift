import Glibc
import NotifyCenter
import NotifydProtocol

/// notifyd's counts since its start.
struct Figures: Sendable {
    var calls: [NotifydProtocol.Method: UInt64] = [:]
    var refusals = 0
    var pathChanges: UInt64 = 0
}

/// notifyd's status, for people. Pure.
struct StatusText {
    let process: UInt32
    let bus: String
    let configuration: String
    let reservations: Int
    let figures: Figures
    let paths: PathWatcher.Figures
    let names: [NameListing]
    let processes: [ProcessListing]

    var summary: String {
        let calls = figures.calls.map { ($0.key.rawValue, $0.value) }.sorted { $0.0 < $1.0 }
            .map { "\($0.0) \($0.1)" }
        return """
            notifyd, process \(process)
            bus: \(printable(bus))
            configuration: \(printable(configuration)), reserved prefixes \(reservations)
            names: \(names.count), permanent \(names.count { $0.isPermanent })
            processes: \(processes.count)
            paths: \(paths.paths), watches \(paths.watches), changes told \(figures.pathChanges)
            calls: \(calls.joined(separator: ", ")); refused \(figures.refusals)

            """
    }

    var details: String {
        var clients: [NotificationName: String] = [:]
        for process in processes {
            for report in process.report.names {
                clients[NotificationName(report.name), default: ""] += client(process, report)
            }
        }
        return names.map { name in
            "\nname \(printable(name.name)): state \(name.state)\(name.isPermanent ? ", permanent" : "")\n"
                + (clients[NotificationName(name.name)] ?? "")
        }
        .joined()
    }

    private func client(_ process: ProcessListing, _ report: NameReport) -> String {
        let suspended = process.report.suspensions > 0 ? ", suspended \(process.report.suspensions)" : ""
        var text = "  process \(process.process), user \(process.user), \(process.connection)\(suspended)"
        text += process.program.isEmpty ? "\n" : ", \(printable(process.program))\n"
        for registration in report.registrations {
            text += "    token \(registration.token): \(registration.kind.rawValue)"
            text += ", suspended \(registration.suspensions), notified \(registration.deliveries)\n"
        }
        for monitor in report.monitors {
            text += "    token \(monitor.token) monitors \(printable(monitor.path))"
            text += ", flags 0x\(String(monitor.flags, radix: 16))\n"
        }
        return text
    }

    /// The text on one line, with any characters in the names.
    private func printable(_ text: String) -> String {
        var result = "“"
        for scalar in text.unicodeScalars {
            if scalar.isPrintable {
                result.unicodeScalars.append(scalar)
            } else {
                result += "\\u{\(String(scalar.value, radix: 16))}"
            }
        }
        return result + "”"
    }
}

/// The file of the status that signals ask for (Rules, a.15).
enum StatusFile {
    /// In the directory of this login session. Without one, root uses the directory of the system.
    static func path(runtimeDirectory: String?, user: UInt32, process: Int32) -> String? {
        if let runtimeDirectory, !runtimeDirectory.isEmpty { return "\(runtimeDirectory)/notifyd_\(process).status" }
        return user == 0 ? "/var/run/notifyd_\(process).status" : nil
    }

    static func write(_ text: String) throws(StatusFileError) {
        let runtime = getenv("XDG_RUNTIME_DIR").map { String(cString: $0) }
        guard let path = path(runtimeDirectory: runtime, user: geteuid(), process: getpid()) else {
            throw StatusFileError(path: "a file", message: "set XDG_RUNTIME_DIR to a directory of this user")
        }
        // Links are not followed, and this does not wait for a reader of a pipe.
        let descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { throw StatusFileError(path: path, message: String(cString: strerror(errno))) }
        defer { close(descriptor) }
        let error = writeAll(text, to: descriptor)
        guard error == 0 else { throw StatusFileError(path: path, message: String(cString: strerror(error))) }
    }
}

/// Why a status was not written.
struct StatusFileError: Error, CustomStringConvertible {
    let path: String
    let message: String

    var description: String { "could not write the status to \(path): \(message)" }
}
