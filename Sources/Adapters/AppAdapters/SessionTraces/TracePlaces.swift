import DeviceConfiguration
import FoundationEssentials

/// The places of a session's file traces, from the XDG base directories, the user's directories and the mounted file
/// systems. Only the initializer reads the environment and files.
package struct TracePlaces: Sendable {
    /// The home directory with links resolved: the administrator chooses it, whereas links below it are the user's.
    let home: String
    private let namedHome: String
    private let environment: [String: String]
    /// The content of `user-dirs.dirs`.
    private var userDirectories: String
    /// The content of `/proc/self/mounts`.
    private let mounts: String
    private let user: UInt32

    init(environment: [String: String], user: SystemUser) {
        let named = environment["HOME"].flatMap { $0.hasPrefix("/") ? $0 : nil } ?? user.home ?? "/nonexistent"
        let read = { (path: String) in (try? String(contentsOfFile: path, encoding: .utf8)) ?? "" }
        self.init(
            home: pathWithoutLinks(named),
            namedHome: named,
            environment: environment,
            userDirectories: "",
            mounts: read("/proc/self/mounts"),
            user: user.number
        )
        userDirectories = read("\(configuration)/user-dirs.dirs")
    }

    package init(
        home: String,
        namedHome: String? = nil,
        environment: [String: String],
        userDirectories: String,
        mounts: String,
        user: UInt32
    ) {
        (self.home, self.namedHome, self.user) = (home, namedHome ?? home, user)
        (self.environment, self.userDirectories, self.mounts) = (environment, userDirectories, mounts)
    }

    private var configuration: String { base("XDG_CONFIG_HOME", ".config") }
    private var data: String { base("XDG_DATA_HOME", ".local/share") }
    private var cache: String { base("XDG_CACHE_HOME", ".cache") }
    private var state: String { base("XDG_STATE_HOME", ".local/state") }

    /// Histories that terminal programs and X sessions write into the home directory.
    private static let histories = [
        ".bash_history", ".zsh_history", ".sh_history", ".ash_history", ".python_history", ".node_repl_history",
        ".sqlite_history", ".psql_history", ".mysql_history", ".lesshst", ".viminfo", ".wget-hsts",
        ".xsession-errors", ".xsession-errors.old",
    ]

    /// GNOME's keyrings.
    package var keyrings: [String] { ["\(data)/keyrings", "\(home)/.gnome2/keyrings"] }
    /// KDE's wallets.
    package var wallets: [String] { ["\(data)/kwalletd"] }

    /// The files and directories of a trace that is kept in files.
    package func paths(of trace: SessionTrace) -> [String] {
        switch trace {
        case .recentFiles:
            [
                "\(data)/recently-used.xbel", "\(home)/.recently-used.xbel", "\(home)/.recently-used",
                // KDE's, also of its activities.
                "\(data)/RecentDocuments", "\(data)/kactivitymanagerd/resources",
            ]
        case .downloads: downloads
        case .trash: ["\(data)/Trash"] + trashesOfMounts
        case .thumbnails: ["\(cache)/thumbnails", "\(home)/.thumbnails"]
        case .history: Self.histories.map { "\(home)/\($0)" } + ["\(data)/fish/fish_history", "\(state)/lesshst"]
        case .keyring: keyrings + wallets
        case .clipboard, .printQueue: []
        }
    }

    /// The download directories of the environment and of the user's directories.
    private var downloads: [String] {
        let named = environment["XDG_DOWNLOAD_DIR"].flatMap { $0.hasPrefix("/") ? inHome($0) : nil }
        let written = userDirectories.split(separator: "\n").compactMap { line -> String? in
            guard let match = line.wholeMatch(of: /\s*XDG_DOWNLOAD_DIR="(.*)"\s*/) else { return nil }
            let text = String(match.1).replacing(/\\(.)/) { String($0.1) }
            if text.hasPrefix("$HOME") { return home + text.dropFirst("$HOME".count) }
            return text.hasPrefix("/") ? inHome(text) : nil
        }
        // The home directory itself means none: xdg-user-dirs writes it when the directory is gone. Programs then use
        // the default.
        let isNone = { (path: String) in path.utf8.elementsEqual(home.utf8) }
        let all = [named, written.last].compactMap(\.self).map(Self.withoutLastSlashes)
        let own = written.last.map { !isNone(Self.withoutLastSlashes($0)) } ?? false
        return (all.filter { !isNone($0) } + (own ? [] : ["\(home)/Downloads"])).reduce(into: []) { paths, path in
            if !paths.contains(path) { paths.append(path) }
        }
    }

    private static func withoutLastSlashes(_ path: String) -> String {
        var path = path
        while path.utf8.count > 1, path.utf8.last == UInt8(ascii: "/") { path = String(path.utf8.dropLast()) ?? "/" }
        return path
    }

    /// The trash directories at the top of other file systems, by the freedesktop.org trash specification. Only of
    /// disks, because an unresponsive server would hold up the cleanup. FUSE is skipped, because the user who mounts it
    /// chooses the device name.
    private var trashesOfMounts: [String] {
        mounts.split(separator: "\n").flatMap { line -> [String] in
            let fields = line.split(separator: " ")
            guard fields.count > 2, fields[0].hasPrefix("/dev/"), fields[2] != "fuse", !fields[2].hasPrefix("fuse.")
            else { return [] }
            let place = String(fields[1]).replacing(/\\([0-7]{3})/) { match in
                String(UnicodeScalar(UInt8(match.1, radix: 8) ?? 0x3f))
            }
            let top = place == "/" ? "" : place
            return ["\(top)/.Trash-\(user)", "\(top)/.Trash/\(user)"].filter { TraceFiles.isThere($0) }
        }
    }

    private func base(_ name: String, _ standard: String) -> String {
        environment[name].flatMap { $0.hasPrefix("/") ? inHome($0) : nil } ?? "\(home)/\(standard)"
    }

    /// Rewrites the path to the home directory with links resolved.
    private func inHome(_ path: String) -> String {
        CleanupPath.isSame(path, orBelow: namedHome) ? home + path.dropFirst(namedHome.count) : path
    }
}
