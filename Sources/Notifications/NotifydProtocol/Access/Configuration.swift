import DBusTransport
import Glibc

/// Finds and reads `notify.conf`.
package enum ConfigurationFile {
    /// The environment variable that names another file; ignored in a process with more rights than its user.
    package static let environmentVariable = "NOTIFY_CENTER_CONFIGURATION"
    package static let standardPath = "/etc/notify.conf"
    /// The machine's file, as a Flatpak with `--filesystem=host-etc` and a toolbox see it.
    fileprivate static let pathInSandbox = "/run/host/etc/notify.conf"

    /// A configuration has a few hundred bytes; this protects processes from a file that is something else.
    fileprivate static let maximumBytes = 1 << 20

    /// What the environment names, else the standard path.
    package static var ofMachine: String {
        ProcessEnvironment.value(environmentVariable) ?? standardPath
    }

    /// The bytes of a file that only root or this process's effective user can have written (Rules, a.5).
    package static func read(_ path: String) throws(ConfigurationFileError) -> [UInt8] {
        // Non-blocking, because the path may be a pipe to which nobody writes.
        let descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
        guard descriptor >= 0 else {
            let code = errno
            throw ConfigurationFileError(
                path: path,
                reason: code == ENOENT || code == ENOTDIR ? .missing : .unreadable(text(code))
            )
        }
        defer { close(descriptor) }
        // Of the open descriptor, so that nobody can exchange the file meanwhile.
        var status = stat()
        guard fstat(descriptor, &status) == 0 else {
            throw ConfigurationFileError(path: path, reason: .unreadable(text(errno)))
        }
        guard status.st_mode & S_IFMT == S_IFREG else { throw ConfigurationFileError(path: path, reason: .noFile) }
        guard status.st_uid == 0 || status.st_uid == geteuid() || isOfHiddenRoot(status.st_uid, path) else {
            throw ConfigurationFileError(path: path, reason: .foreignOwner(status.st_uid))
        }
        guard status.st_mode & (S_IWGRP | S_IWOTH) == 0 else {
            throw ConfigurationFileError(path: path, reason: .writableByOthers)
        }
        return try read(descriptor, path)
    }

    /// Whether the owner is root in all likelihood, where this process cannot see that: in a user namespace without root, as sandboxes make
    /// them, all users but its own look like one. Only root puts files at these paths.
    private static func isOfHiddenRoot(_ owner: UInt32, _ path: String) -> Bool {
        let hiddenUser: UInt32 = 65_534
        guard owner == hiddenUser, [standardPath, pathInSandbox].contains(path), let map = try? map() else {
            return false
        }
        return !map.split(separator: UInt8(ascii: "\n")).contains { line in
            // The first user inside, and how many there are: “0 1000 1”.
            line.first { $0 != UInt8(ascii: " ") } == UInt8(ascii: "0")
        }
    }

    private static func map() throws(ConfigurationFileError) -> [UInt8] {
        let path = "/proc/self/uid_map"
        let descriptor = open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { throw ConfigurationFileError(path: path, reason: .unreadable(text(errno))) }
        defer { close(descriptor) }
        return try read(descriptor, path)
    }

    private static func read(_ descriptor: CInt, _ path: String) throws(ConfigurationFileError) -> [UInt8] {
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 16_384)
        while true {
            let count = Glibc.read(descriptor, &buffer, buffer.count)
            if count == 0 { return bytes }
            guard count > 0 else {
                if errno == EINTR { continue }
                throw ConfigurationFileError(path: path, reason: .unreadable(text(errno)))
            }
            bytes += buffer[..<count]
            guard bytes.count <= maximumBytes else { throw ConfigurationFileError(path: path, reason: .tooLarge) }
        }
    }

    private static func text(_ code: CInt) -> String { String(cString: strerror(code)) }
}

/// Why a file is not used.
package struct ConfigurationFileError: Error, Hashable, CustomStringConvertible {
    package enum Reason: Sendable, Hashable {
        case missing
        case unreadable(String)
        /// It is a directory or a device.
        case noFile
        /// It belongs to another user than root and this one.
        case foreignOwner(UInt32)
        /// Others than its owner may write it.
        case writableByOthers
        case tooLarge
    }

    package let path: String
    package let reason: Reason

    package init(path: String, reason: Reason) {
        self.path = path
        self.reason = reason
    }

    /// One line: what was attempted, what is wrong, and the remedy.
    package var description: String {
        let text =
            switch reason {
            case .missing: "there is no such file"
            case .unreadable(let message): "\(message); check its permissions"
            case .noFile: "it is not a regular file; put one in its place"
            case .foreignOwner(let user): "it belongs to user \(user); give it to root (chown root)"
            case .writableByOthers: "other users may write it; forbid that (chmod go-w)"
            case .tooLarge: "it has more than \(ConfigurationFile.maximumBytes) bytes; shorten it"
            }
        return "could not use the configuration \(path): \(text)"
    }
}

/// The access rules of this machine, as this process has read them. The first use reads the file. A failed read is not
/// kept: the next use reads again.
package final class MachineRules: Sendable {
    private final class Held: Sendable {
        let rules: AccessRules
        init(_ rules: AccessRules) { self.rules = rules }
    }

    /// Without a lock, because a forked child reads it.
    private let held = StoredOnce<Held>()
    private let path: String

    package init(path: String = ConfigurationFile.ofMachine) { self.path = path }

    /// Returns the rules.
    ///
    /// - Throws: if there is a file that cannot be read or trusted. It may reserve any name.
    package func read() throws(ConfigurationFileError) -> AccessRules {
        if let held = held.load() { return held.rules }
        return held.storeIfNil(Held(try NotifyConfiguration(ofMachine: path).rules)).rules
    }
}

/// What `/etc/notify.conf` says, for notifyd, and for the access rules of every process (Rules, a.5).
package struct NotifyConfiguration: Sendable, Hashable {
    /// A name that is posted whenever something changes at a path.
    package struct Monitor: Sendable, Hashable {
        package var name: String
        package var path: String

        package init(name: String, path: String) {
            self.name = name
            self.path = path
        }
    }

    /// A name that stays without registrations.
    package struct PermanentName: Sendable, Hashable {
        package var name: String
        /// What its state is at first.
        package var state: UInt64

        package init(name: String, state: UInt64) {
            self.name = name
            self.state = state
        }
    }

    /// Who may use which names.
    package var rules = AccessRules()
    /// In the file's order.
    package var monitors: [Monitor] = []
    /// In the file's order.
    package var permanentNames: [PermanentName] = []

    package init() {}

    /// Reads the file of this machine. Without a file the configuration is empty. Wrong lines are ignored: notifyd
    /// reports them.
    fileprivate init(ofMachine path: String) throws(ConfigurationFileError) {
        do throws(ConfigurationFileError) {
            self = ConfigurationParser.parse(try ConfigurationFile.read(path)).configuration
        } catch {
            guard error.reason == .missing else { throw error }
            guard path == ConfigurationFile.standardPath else {
                self.init()
                return
            }
            try self.init(ofMachine: ConfigurationFile.pathInSandbox)
        }
    }
}
