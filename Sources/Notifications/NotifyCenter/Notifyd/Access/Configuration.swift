import Basics
import DBus
import Glibc

package enum ConfigurationFile {
    /// The environment variable that names another file. It is ignored in a process with more rights than its user.
    package static let environmentVariable = "NOTIFY_CENTER_CONFIGURATION"
    package static let standardPath = "/etc/notify.conf"
    /// The machine's file, as a toolbox and a Flatpak with `--filesystem=host-etc` see it.
    fileprivate static let pathInSandbox = "/run/host/etc/notify.conf"

    /// A configuration has a few hundred bytes. The limit protects processes from a path to some other file.
    fileprivate static let maximumBytes = 1 << 20

    /// The path in the environment variable, or else the standard path.
    package static var ofMachine: String {
        ProcessEnvironment.value(environmentVariable) ?? standardPath
    }

    /// Returns the bytes of a file that only root or this process's effective user can have written (Rules, a.5).
    package static func read(_ path: String) throws(ConfigurationFileError) -> [UInt8] {
        let status: stat
        let bytes: [UInt8]
        do throws(FileReadError) {
            let file = try ReadableFile(path)
            status = try file.status()
            bytes = status.st_mode & S_IFMT == S_IFREG ? try file.content(atMost: maximumBytes) : []
        } catch {
            let reason: ConfigurationFileError.Reason =
                switch error {
                case .tooLarge: .tooLarge
                case .system: error.isMissing ? .missing : .unreadable(error.reason)
                }
            throw ConfigurationFileError(path: path, reason: reason)
        }
        guard status.st_mode & S_IFMT == S_IFREG else { throw ConfigurationFileError(path: path, reason: .noFile) }
        guard status.st_uid == 0 || status.st_uid == geteuid() || isOfHiddenRoot(status.st_uid, path) else {
            throw ConfigurationFileError(path: path, reason: .foreignOwner(status.st_uid))
        }
        guard status.st_mode & (S_IWGRP | S_IWOTH) == 0 else {
            throw ConfigurationFileError(path: path, reason: .writableByOthers)
        }
        return bytes
    }

    /// Whether the owner is in all likelihood root, hidden by a user namespace. In a namespace without root, as
    /// sandboxes make them, all foreign users appear as one user. Only root puts files at these paths.
    private static func isOfHiddenRoot(_ owner: UInt32, _ path: String) -> Bool {
        let hiddenUser: UInt32 = 65_534
        guard owner == hiddenUser, [standardPath, pathInSandbox].contains(path),
            let map = try? ReadableFile("/proc/self/uid_map").prefix(maximumBytes)
        else {
            return false
        }
        return !map.split(separator: UInt8(ascii: "\n")).contains { line in
            // The first user inside the namespace, the first outside, and the number of users: “0 1000 1”.
            line.first { $0 != UInt8(ascii: " ") } == UInt8(ascii: "0")
        }
    }
}

package struct ConfigurationFileError: Error, Hashable, CustomStringConvertible {
    package enum Reason: Sendable, Hashable {
        case missing
        case unreadable(String)
        /// It is not a regular file, but a directory or a device, for example.
        case noFile
        /// It belongs to a user other than root and this process's user.
        case foreignOwner(UInt32)
        /// Users other than its owner may write it.
        case writableByOthers
        case tooLarge
    }

    package let path: String
    package let reason: Reason

    package init(path: String, reason: Reason) {
        self.path = path
        self.reason = reason
    }

    /// The attempt, the problem and the remedy, in one line.
    package var description: String {
        let text =
            switch reason {
            case .missing: "there is no such file"
            case .unreadable(let message): "\(message); check its permissions"
            case .noFile: "it is not a regular file; replace it with a regular file"
            case .foreignOwner(let user): "it belongs to user \(user); give it to root (chown root)"
            case .writableByOthers: "other users may write it; forbid that (chmod go-w)"
            case .tooLarge: "it has more than \(ConfigurationFile.maximumBytes) bytes; shorten it"
            }
        return "could not use the configuration \(path): \(text)"
    }
}

/// This machine's access rules, in this process. The file is read on first use. A failed read is not cached: the next
/// use reads again.
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
    /// - Throws: an error if the file exists and cannot be read or trusted. Such a file may reserve any name.
    package func read() throws(ConfigurationFileError) -> AccessRules {
        if let held = held.load() { return held.rules }
        return held.storeIfNil(Held(try NotifyConfiguration(ofMachine: path).rules)).rules
    }
}

/// The contents of `/etc/notify.conf`, for notifyd, and for the access rules of every process (Rules, a.5).
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

    /// A name that continues to exist without registrations.
    package struct PermanentName: Sendable, Hashable {
        package var name: String
        package var state: UInt64

        package init(name: String, state: UInt64) {
            self.name = name
            self.state = state
        }
    }

    package var rules = AccessRules()
    /// In the file's order.
    package var monitors: [Monitor] = []
    /// In the file's order.
    package var permanentNames: [PermanentName] = []

    package init() {}

    /// Reads the file of this machine. Without a file the configuration is empty. Invalid lines are ignored: notifyd
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
