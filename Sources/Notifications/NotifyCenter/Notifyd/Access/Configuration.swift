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
    package static var ofMachine: String { ProcessEnvironment.value(environmentVariable) ?? standardPath }

    /// Returns the bytes of a file that only root or this process's effective user can have written (rule a.5 of
    /// notify(3)).
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
        else { return false }
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
        case foreignOwner(UInt32)
        case writableByOthers
        case tooLarge
    }

    package let path: String
    package let reason: Reason

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

/// The contents of `/etc/notify.conf`, for notifyd, and for the access rules of every process (rule a.5 of notify(3)).
package struct NotifyConfiguration: Sendable, Hashable {
    /// A name that is posted whenever something changes at a path.
    package struct Monitor: Sendable, Hashable {
        package var name: String
        package var path: String
    }

    /// A name that continues to exist without registrations.
    package struct PermanentName: Sendable, Hashable {
        package var name: String
        package var state: UInt64
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
            self.init()
            if path == ConfigurationFile.standardPath { try self.init(ofMachine: ConfigurationFile.pathInSandbox) }
        }
    }
}

/// Parses the text of `notify.conf` (rule a.5 of notify(3)). Pure.
///
///     # comment
///     reserve PREFIX [UID [GID [ACCESS]]]    ACCESS: rwrwrw, for user, group and others
///     monitor NAME PATH                      post NAME whenever PATH changes
///     set NAME [VALUE]                       a name that stays, and its initial state
///     quit                                   ignore the rest
///
/// Keywords are case-insensitive. Any number of blanks and tabs separates fields. The defaults are 0 for UID and GID,
/// `rwrwrw` for ACCESS and 0 for VALUE. Of two lines for the same prefix or name, the later one counts.
package struct ConfigurationParser {
    private static let maximumLineBytes = 1023

    private var configuration = NotifyConfiguration()
    private var errors: [ConfigurationLineError] = []
    private var hasQuit = false
    /// The fields of the line that are not read yet.
    private var words: ArraySlice<String> = []

    /// Returns the configuration, and an error for each ignored line, in order.
    package static func parse(
        _ bytes: [UInt8]
    ) -> (configuration: NotifyConfiguration, errors: [ConfigurationLineError]) {
        var parser = ConfigurationParser()
        for (index, line) in bytes.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false).enumerated() {
            do throws(Reason) {
                try parser.take(line)
                if parser.hasQuit { break }
            } catch {
                let text = String(decoding: line.prefix(80), as: UTF8.self)
                parser.errors.append(ConfigurationLineError(line: index + 1, text: text, reason: error))
            }
        }
        return (parser.configuration, parser.errors)
    }

    private typealias Reason = ConfigurationLineError.Reason

    private mutating func take(_ line: ArraySlice<UInt8>) throws(Reason) {
        guard line.count <= Self.maximumLineBytes else { throw .tooLong }
        guard let text = String(validating: line, as: UTF8.self), !line.contains(0) else { throw .noText }
        // A carriage return counts as a blank, because other systems end lines with it.
        let separators: Set<Unicode.Scalar> = [" ", "\t", "\r"]
        words = text.unicodeScalars.split { separators.contains($0) }.map { String($0) }[...]
        guard let keyword = words.popFirst(), !keyword.utf8.starts(with: "#".utf8) else { return }
        switch keyword.lowercased() {
        case "reserve": try reserve()
        case "monitor": try monitor()
        case "set": try set()
        case "quit":
            try end()
            hasQuit = true
        default: throw .unknownKeyword(keyword)
        }
    }

    private mutating func reserve() throws(Reason) {
        let prefix = try name("prefix")
        guard case .everyone = NameScope(prefix) else { throw .fixedName(prefix) }
        let user = try words.popFirst().map(Self.identifier) ?? 0
        let group = try words.popFirst().map(Self.identifier) ?? 0
        let access = try words.popFirst().map(Self.access) ?? AccessRules.Reservation.everything
        try end()
        configuration.rules.reservations.removeAll { $0.prefix.utf8.elementsEqual(prefix.utf8) }
        configuration.rules.reservations.append(.init(prefix: prefix, user: user, group: group, access: access))
    }

    private mutating func monitor() throws(Reason) {
        let (name, path) = (try publicName(), try self.name("path"))
        try end()
        guard path.utf8.first == UInt8(ascii: "/") else { throw .relativePath(path) }
        configuration.monitors.append(.init(name: name, path: path))
    }

    private mutating func set() throws(Reason) {
        let name = try publicName()
        let value = try words.popFirst().map(Self.value) ?? 0
        try end()
        configuration.permanentNames.removeAll { $0.name.utf8.elementsEqual(name.utf8) }
        configuration.permanentNames.append(.init(name: name, state: value))
    }

    private static func identifier(_ word: String) throws(Reason) -> UInt32 {
        guard let number = UInt32(word) else { throw .badIdentifier(word) }
        return number
    }

    private static func value(_ word: String) throws(Reason) -> UInt64 {
        guard let value = UInt64(word) ?? Int64(word).map(UInt64.init(bitPattern:)) else { throw .badValue(word) }
        return value
    }

    private static func access(_ word: String) throws(Reason) -> UInt16 {
        let letters = Array(word.utf8)
        guard letters.count == 6 else { throw .badAccess(word) }
        var access: UInt16 = 0
        for (index, letter) in letters.enumerated() {
            let expected = index.isMultiple(of: 2) ? UInt8(ascii: "r") : UInt8(ascii: "w")
            guard letter == expected || letter == UInt8(ascii: "-") else { throw .badAccess(word) }
            if letter == expected { access |= 1 << UInt16(index / 2 * 4 + index % 2) }
        }
        return access
    }

    private mutating func name(_ field: String) throws(Reason) -> String {
        guard let word = words.popFirst() else { throw .missing(field) }
        return word
    }

    /// Returns a name that other processes can register.
    private mutating func publicName() throws(Reason) -> String {
        let name = try name("name")
        guard NameScope(name) != .process else { throw .fixedName(name) }
        return name
    }

    private func end() throws(Reason) {
        if let word = words.first { throw .superfluous(word) }
    }
}

/// An error for a line of `notify.conf` that the parser ignores. The other lines take effect.
package struct ConfigurationLineError: Error, Sendable, Hashable, CustomStringConvertible {
    package struct Reason: Error, Hashable {
        fileprivate let message: String
        fileprivate let remedy: String

        private init(_ message: String, _ remedy: String) { (self.message, self.remedy) = (message, remedy) }

        static let noText = Reason("the line is not text", "write it in UTF-8")
        static let tooLong = Reason("the line is too long", "shorten it to 1023 bytes")
        static func unknownKeyword(_ word: String) -> Reason {
            Reason("“\(word)” is not a keyword", "write reserve, monitor, set or quit; a comment begins with #")
        }
        static func missing(_ field: String) -> Reason { Reason("the \(field) is missing", "add the \(field)") }
        static func superfluous(_ word: String) -> Reason { Reason("“\(word)” is one field too many", "leave it out") }
        static func badIdentifier(_ word: String) -> Reason {
            Reason("“\(word)” is not a number of a user or group", "write the number of the user or group")
        }
        static func badAccess(_ word: String) -> Reason {
            let remedy = "write r or -, and w or -, for user, group and others, such as rwr-r-"
            return Reason("“\(word)” is not an access", remedy)
        }
        static func badValue(_ word: String) -> Reason {
            let remedy = "write a number from 0 to 18446744073709551615, or a negative one of 64 bits"
            return Reason("“\(word)” is not a state", remedy)
        }
        static func relativePath(_ path: String) -> Reason {
            Reason("“\(path)” is not absolute", "write a path that begins with /")
        }
        static func fixedName(_ name: String) -> Reason {
            let message = "the form of the name “\(name)” decides who may use it; this line has no effect"
            return Reason(message, "leave the line out")
        }
    }

    /// The line number, from 1.
    package let line: Int
    package let text: String
    package let reason: Reason

    package var remedy: String { reason.remedy }

    /// The place, the problem and the remedy, in one line.
    package var description: String { "line \(line): \(reason.message): “\(text)”; \(remedy)" }
}
