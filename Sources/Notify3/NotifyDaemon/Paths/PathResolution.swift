import Glibc

/// A watch of the kernel's: inotify's descriptor of one directory or file.
typealias Watch = Int32

/// Why a directory or file cannot be watched.
enum WatchFailure: Error, Hashable, Sendable {
    /// It does not exist, or is not a directory although one is needed.
    case missing
    /// The client may not read it.
    case denied
    /// The kernel has no watches left, or another error; in words.
    case impossible(String)
}

/// The kind of file at a place; a link is not followed.
enum FileEntry: Hashable, Sendable {
    case missing
    case denied
    /// A symbolic link and its text.
    case link([UInt8])
    case file(FileSnapshot, isDirectory: Bool)
}

/// The file system as resolving a path needs it.
protocol FileSystemLook {
    /// Watches a directory; a link is not followed.
    mutating func watch(directory: FilePath) throws(WatchFailure) -> Watch
    /// Watches a file that is not a directory; a link is not followed.
    mutating func watch(file: FilePath) throws(WatchFailure) -> Watch
    func entry(at path: FilePath) -> FileEntry
}

/// The events of a watch that a path needs.
enum WatchInterest: Hashable, Sendable {
    /// An entry on the way.
    case entry(FilePath.Name)
    /// The entry that is the path's last part.
    case last(FilePath.Name)
    /// The target of the path.
    case target
}

/// The watches that a path needs in the current file system, and what is at its end. Pure, except for the look.
///
/// Each directory on the way is watched for the path's next part, links and their targets included; the path's target is watched itself.
/// A directory is watched before its entry is looked at, so that a change in between is reported.
struct PathResolution: Hashable, Sendable {
    enum End: Hashable, Sendable {
        case present(FileSnapshot)
        case missing
        /// A part of the path, or its end, may not be read.
        case denied
        case impossible(String)
    }

    /// A watch may have several interests.
    private(set) var interests: [Watch: Set<WatchInterest>] = [:]
    private(set) var end = End.missing

    var snapshot: FileSnapshot? {
        if case .present(let snapshot) = end { snapshot } else { nil }
    }

    /// As many links as the kernel follows.
    private static let maximumLinks = 40

    /// As many parts as two of the longest paths have. The kernel follows more, but such a path would only keep others waiting.
    private static let maximumParts = 4096

    private init(end: End) { self.end = end }

    /// The result for a path that may not be looked at.
    static let denied = PathResolution(end: .denied)

    init(of path: FilePath, by look: inout some FileSystemLook) {
        do throws(WatchFailure) {
            end = try resolve(path, &look)
        } catch {
            end =
                switch error {
                case .missing: .missing
                case .denied: .denied
                case .impossible(let message): .impossible(message)
                }
        }
    }

    private mutating func resolve(_ path: FilePath, _ look: inout some FileSystemLook) throws(WatchFailure) -> End {
        // The next part last.
        var parts = Array(FilePath.names(in: path.bytes).reversed())
        var directory = FilePath.root
        var (links, taken) = (0, 0)
        while let name = parts.popLast() {
            taken += 1
            guard taken <= Self.maximumParts else { return .missing }
            if name == FilePath.upwards {
                directory = directory.parent
                continue
            }
            let watch = try look.watch(directory: directory)
            interests[watch, default: []].insert(parts.isEmpty ? .last(name) : .entry(name))
            let place = directory.appending(name)
            switch look.entry(at: place) {
            case .missing: return .missing
            case .denied: return .denied
            case .link(let target):
                links += 1
                guard links <= Self.maximumLinks else { return .missing }
                if FilePath.isAbsolute(target) { directory = .root }
                parts += FilePath.names(in: target).reversed()
            case .file(_, isDirectory: true): directory = place
            case .file(let snapshot, isDirectory: false):
                guard parts.isEmpty else { return .missing }
                interests[try look.watch(file: place), default: []].insert(.target)
                return .present(snapshot)
            }
        }
        interests[try look.watch(directory: directory), default: []].insert(.target)
        guard case .file(let snapshot, _) = look.entry(at: directory) else { return .missing }
        return .present(snapshot)
    }
}

/// The file system by inotify and lstat.
struct InotifyLook: FileSystemLook {
    /// The events of a directory's watch: new, removed and changed entries, and changes of the directory itself.
    private static let directoryEvents =
        UInt32(IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF)
        | UInt32(IN_ONLYDIR | IN_DONT_FOLLOW)
    /// The events of a file's watch.
    private static let fileEvents =
        UInt32(IN_MODIFY | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF | IN_DONT_FOLLOW)

    let descriptor: CInt

    func watch(directory: FilePath) throws(WatchFailure) -> Watch {
        try watch(directory, Self.directoryEvents)
    }

    func watch(file: FilePath) throws(WatchFailure) -> Watch { try watch(file, Self.fileEvents) }

    private func watch(_ path: FilePath, _ events: UInt32) throws(WatchFailure) -> Watch {
        let watch = path.withCString { inotify_add_watch(descriptor, $0, events) }
        guard watch >= 0 else {
            let code = errno
            throw switch code {
            case ENOENT, ENOTDIR, ELOOP, ENAMETOOLONG: .missing
            case EACCES, EPERM: .denied
            case ENOSPC: .impossible("the kernel allows no more watches; raise fs.inotify.max_user_watches")
            default: .impossible(String(cString: strerror(code)))
            }
        }
        return watch
    }

    func entry(at path: FilePath) -> FileEntry {
        var status = stat()
        guard path.withCString({ lstat($0, &status) }) == 0 else {
            return errno == EACCES || errno == EPERM ? .denied : .missing
        }
        switch status.st_mode & S_IFMT {
        case S_IFLNK: return link(at: path)
        case S_IFDIR: return .file(FileSnapshot(status), isDirectory: true)
        default: return .file(FileSnapshot(status), isDirectory: false)
        }
    }

    private func link(at path: FilePath) -> FileEntry {
        var target = [UInt8](repeating: 0, count: Int(PATH_MAX))
        let length = path.withCString { path in
            target.withUnsafeMutableBytes { buffer in
                // Never empty.
                readlink(path, buffer.assumingMemoryBound(to: CChar.self).baseAddress!, buffer.count)
            }
        }
        return length > 0 ? .link(Array(target[..<length])) : .missing
    }
}
