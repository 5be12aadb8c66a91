import Glibc

/// Where the status goes that signals ask for (notify(3), a.15).
enum StatusFile {
    struct Failure: Error, CustomStringConvertible {
        let path: String
        let message: String

        var description: String { "could not write the status to \(path): \(message)" }
    }

    /// In the directory of this login session; without one, and for root, in that of the system.
    static func path(runtimeDirectory: String?, user: UInt32, process: Int32) -> String? {
        if let runtimeDirectory, !runtimeDirectory.isEmpty { return "\(runtimeDirectory)/notifyd_\(process).status" }
        return user == 0 ? "/var/run/notifyd_\(process).status" : nil
    }

    static func write(_ text: String) throws(Failure) {
        let runtime = getenv("XDG_RUNTIME_DIR").map { String(cString: $0) }
        guard let path = path(runtimeDirectory: runtime, user: geteuid(), process: getpid()) else {
            throw Failure(path: "a file", message: "set XDG_RUNTIME_DIR to a directory of this user")
        }
        // Nobody's link is followed, and no pipe waited for.
        let descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { throw Failure(path: path, message: String(cString: strerror(errno))) }
        defer { close(descriptor) }
        guard Diagnostics.write(text, to: descriptor) else {
            throw Failure(path: path, message: String(cString: strerror(errno)))
        }
    }
}
