/// Decides from a path's text whether an adapter may delete what is there. Pure: the deletion checks the file system
/// again, because text says nothing about links, owners and mounts.
///
/// A valid path is absolute and contains neither `.` nor `..`. It is neither a directory that other programs need, nor
/// above one. It does not lead into system directories, the home directories of other users, or the records of the
/// broker and the adapters.
public enum CleanupPath {
    /// The longest accepted path, in bytes.
    static let longest = 4000

    /// Directories that a path must neither be nor be above.
    private static let shared = [
        "/home", "/root", "/var/lib", "/var/cache", "/var/log", "/var/tmp", "/var/spool", "/var/mail", "/opt", "/srv",
        "/tmp", "/run/user", "/mnt", "/media",
    ]
    /// Directories that a path must neither be, nor be above, nor lead into.
    private static let closed = [
        "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/sbin", "/sys", "/usr", "/run/systemd",
        "/run/dbus", "/var/lib/shared-device", "/var/lib/shared-device-cleanup", "/var/lib/systemd", "/var/lib/dpkg",
    ]

    private static let ownDirectory = "name a directory that only this app uses"

    /// A path in a file or on a command line, without a pattern. Patterns are never expanded: the receipt would be
    /// given although nothing was deleted.
    public static func written(_ text: String, home: String?) throws(ValueFlaw) -> String {
        try refusePattern(in: text)
        return try checked(text, home: home)
    }

    /// - Throws: ``ValueFlaw`` for a text that a shell would expand.
    public static func refusePattern(in text: String) throws(ValueFlaw) {
        guard !text.utf8.contains(UInt8(ascii: "$")) else {
            throw ValueFlaw("“\(text)” has a variable in it", "write the whole path; ~/ is the user's home directory")
        }
        guard !text.utf8.contains(where: { "*?[".utf8.contains($0) }) else {
            throw ValueFlaw("“\(text)” has a pattern in it", "write the directory itself: all that is in it is deleted")
        }
    }

    /// The path as it is used. A leading `~/` stands for the user's home directory, if there is one. The directories
    /// `kept`, too, must survive the deletion.
    public static func checked(_ text: String, home: String?, keeping kept: [String] = []) throws(ValueFlaw) -> String {
        var path = text
        if text == "~" || text.hasPrefix("~/") {
            guard let home else {
                throw ValueFlaw("“\(text)” is below the home directory, and the user has none", "write the whole path")
            }
            path = home + text.dropFirst()
        }
        if path.count > 1, path.hasSuffix("/") { path.removeLast() }
        let components = try components(of: path, text)
        func refuse(_ reason: String, _ remedy: String) -> ValueFlaw { ValueFlaw("“\(text)” \(reason)", remedy) }
        guard !components.isEmpty else { throw refuse("is the whole file system", Self.ownDirectory) }
        if let home, isSame(home, orBelow: path) {
            throw refuse(
                "is the home directory as a whole, or above it",
                "name the directories in it that the app uses"
            )
        }
        try refuseCommon(path, text, keeping: kept)
        let isOwn = home.map { isSame(path, orBelow: $0) } ?? false
        if !isOwn, let owner = homeDirectory(of: components) {
            throw refuse("is in \(owner), the home directory of another user", "name what the app's user owns")
        }
        return path
    }

    /// A person's whole home directory, which is deleted only for that person, never because a manifest names it.
    public static func wholeHome(_ path: String) throws(ValueFlaw) -> String {
        guard try !components(of: path, path).isEmpty else {
            throw ValueFlaw("“\(path)” is the whole file system", "give the user a home directory")
        }
        try refuseCommon(path, path, keeping: [])
        return path
    }

    /// Refuses directories that the system or several programs need.
    private static func refuseCommon(_ path: String, _ text: String, keeping kept: [String]) throws(ValueFlaw) {
        if let place = (closed + kept).first(where: { isSame(path, orBelow: $0) || isSame($0, orBelow: path) }) {
            throw ValueFlaw("“\(text)” would delete from \(place), which is not the app's", ownDirectory)
        }
        if let place = shared.first(where: { isSame($0, orBelow: path) }) {
            throw ValueFlaw("“\(text)” is \(place), or above it, and other programs use that", ownDirectory)
        }
    }

    public static func isSame(_ path: String, orBelow directory: String) -> Bool {
        // By bytes, as the file system does. Swift compares characters: a combining mark after a slash changes the
        // slash, and characters of different bytes may be equal.
        path.utf8.elementsEqual(directory.utf8)
            || path.utf8.starts(with: (directory == "/" ? "/" : directory + "/").utf8)
    }

    private static func components(of path: String, _ text: String) throws(ValueFlaw) -> [String] {
        guard path.utf8.first == UInt8(ascii: "/") else {
            throw ValueFlaw("“\(text)” is no absolute path", "write the whole path")
        }
        guard path.utf8.count <= longest, !path.utf8.contains(0) else {
            throw ValueFlaw("a path is longer than \(longest) bytes, or has a zero in it", "write another one")
        }
        let components = path.utf8.dropFirst().split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false)
            .map { String(decoding: $0, as: UTF8.self) }
        if components == [""] { return [] }
        guard !components.contains(where: { ["", ".", ".."].contains($0) }) else {
            throw ValueFlaw("“\(text)” has an empty part, “.” or “..” in it", "write the path that it leads to")
        }
        return components
    }

    /// The home directory that the path is or leads into, by its usual location.
    private static func homeDirectory(of components: [String]) -> String? {
        switch components.first {
        case "root": "/root"
        case "home" where components.count > 1: "/home/\(components[1])"
        default: nil
        }
    }
}

/// The problem with a value that an administrator writes, and the remedy.
public struct ValueFlaw: Error, Sendable, Hashable, CustomStringConvertible {
    public let message: String
    public let remedy: String

    public init(_ message: String, _ remedy: String) { (self.message, self.remedy) = (message, remedy) }

    public var description: String { "\(message); \(remedy)" }
}
