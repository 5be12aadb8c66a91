import Glibc

/// inotify's descriptor of a watched directory or file.
typealias Watch = Int32

enum WatchFailure: Error, Hashable, Sendable {
    /// There is no such file, or it is not a directory although one is needed.
    case missing
    /// This process may not read the file or directory.
    case denied
    /// The kernel has no watches left, or another error occurred; in words.
    case impossible(String)
}

/// The kind of file at a path. A link is not followed.
enum FileEntry: Hashable, Sendable {
    case missing
    case denied
    /// A symbolic link and its text.
    case link([UInt8])
    case file(FileSnapshot, isDirectory: Bool)
}

enum WatchKind {
    case directory
    /// A directory, with the writes to its entries.
    case writesInDirectory
    /// A file that is not a directory.
    case file
}

/// The operations on the file system that the resolution of a path needs. They follow no link.
protocol FileSystemLook {
    mutating func watch(_ path: FilePath, _ kind: WatchKind) throws(WatchFailure) -> Watch
    func entry(at path: FilePath) -> FileEntry
}

/// The events of a watch that matter to a path.
enum WatchInterest: Hashable, Sendable {
    /// An entry before the path's last part.
    case entry(FilePath.Name)
    /// The entry that is the path's last part.
    case last(FilePath.Name)
    case target
}

/// The watches that a path needs in the current file system, and the file at its end. Pure, except for the look.
///
/// Each directory of the path is watched for the path's next part, links and their targets included. The path's target
/// is watched itself. Each part is watched before it is looked at, so that a change in between is reported.
///
/// inotify needs the right to read what it watches. An unreadable file is watched through its directory. If the
/// directory is unreadable too, the path is compared with the previous look from time to time.
struct PathResolution: Hashable, Sendable {
    enum End: Hashable, Sendable {
        case present(FileSnapshot)
        case missing
        /// A directory on the way may not be searched.
        case denied
        case impossible(String)
    }

    /// A watch may have several interests.
    private(set) var interests: [Watch: Set<WatchInterest>] = [:]
    private(set) var end = End.missing
    /// Whether a part of the path cannot be watched, so that only another look shows changes.
    private(set) var isCompared = false

    var snapshot: FileSnapshot? {
        if case .present(let snapshot) = end { snapshot } else { nil }
    }

    /// Whether the file or directory at the path is watched itself, whatever its parents allow.
    var isTargetWatched: Bool { interests.values.contains { $0.contains(.target) } }

    /// The number of links that the kernel follows.
    private static let maximumLinks = 40

    /// The limit of the parts that are looked at: as many as two paths of the greatest length have. The kernel follows
    /// more, but such a path would only delay the other paths.
    private static let maximumParts = 4096

    /// - Parameter contents: Whether to watch the files in the directory at the path as well.
    init(of path: FilePath, contents: Bool = false, by look: inout some FileSystemLook) {
        do throws(WatchFailure) {
            end = try resolve(path, contents, &look)
        } catch {
            end =
                switch error {
                case .missing: .missing
                case .denied: .denied
                case .impossible(let message): .impossible(message)
                }
        }
    }

    private mutating func resolve(
        _ path: FilePath,
        _ contents: Bool,
        _ look: inout some FileSystemLook
    ) throws(WatchFailure) -> End {
        // Reversed, so that the next part is the last element.
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
            let interest = parts.isEmpty ? WatchInterest.last(name) : .entry(name)
            if try !watch(directory, .directory, interest, &look) { isCompared = true }
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
            case .file(_, isDirectory: false):
                guard parts.isEmpty else { return .missing }
                if try !watch(place, .file, .target, &look),
                    try !watch(directory, .writesInDirectory, .last(name), &look)
                {
                    isCompared = true
                }
                guard case .file(let snapshot, isDirectory: false) = look.entry(at: place) else { return .missing }
                return .present(snapshot)
            }
        }
        if try !watch(directory, contents ? .writesInDirectory : .directory, .target, &look) { isCompared = true }
        guard case .file(let snapshot, _) = look.entry(at: directory) else { return .missing }
        return .present(snapshot)
    }

    /// Returns false if this process may not read the file or directory.
    private mutating func watch(
        _ path: FilePath,
        _ kind: WatchKind,
        _ interest: WatchInterest,
        _ look: inout some FileSystemLook
    ) throws(WatchFailure) -> Bool {
        do throws(WatchFailure) {
            interests[try look.watch(path, kind), default: []].insert(interest)
            return true
        } catch {
            guard error == .denied else { throw error }
            return false
        }
    }
}

/// The file system as inotify and lstat show it.
struct InotifyLook: FileSystemLook {
    /// The events of a directory's watch: new, removed and changed entries, and changes of the directory itself.
    private static let directoryEvents =
        UInt32(IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF)
        | UInt32(IN_ONLYDIR | IN_DONT_FOLLOW)
    private static let fileEvents = UInt32(IN_MODIFY | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF | IN_DONT_FOLLOW)

    let descriptor: CInt
    /// How many watches this look may add to those in use.
    let room: Int
    let isInUse: (Watch) -> Bool
    private var made: Set<Watch> = []

    init(descriptor: CInt, room: Int, isInUse: @escaping (Watch) -> Bool) {
        (self.descriptor, self.room, self.isInUse) = (descriptor, room, isInUse)
    }

    mutating func watch(_ path: FilePath, _ kind: WatchKind) throws(WatchFailure) -> Watch {
        let events =
            switch kind {
            case .directory: Self.directoryEvents
            // IN_CLOSE_WRITE as well, because the kernel does not report writes through a memory mapping.
            case .writesInDirectory: Self.directoryEvents | UInt32(IN_MODIFY | IN_CLOSE_WRITE)
            case .file: Self.fileEvents
            }
        // Adds to the mask, because another path may need other events of the same directory.
        let watch = path.withCString { inotify_add_watch(descriptor, $0, events | UInt32(IN_MASK_ADD)) }
        guard watch >= 0 else {
            let code = errno
            throw switch code {
            case ENOENT, ENOTDIR, ELOOP, ENAMETOOLONG: .missing
            case EACCES, EPERM: .denied
            case ENOSPC: .impossible("the kernel's limit of watches is reached; raise fs.inotify.max_user_watches")
            default: .impossible(String(cString: strerror(code)))
            }
        }
        if !isInUse(watch), made.insert(watch).inserted, made.count > room {
            inotify_rm_watch(descriptor, watch)
            throw .impossible("a process may have \(PathTable.maximumWatches) watches; monitor fewer or shorter paths")
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
                // The buffer is never empty.
                readlink(path, buffer.assumingMemoryBound(to: CChar.self).baseAddress!, buffer.count)
            }
        }
        return length > 0 ? .link(Array(target[..<length])) : .missing
    }
}

/// The part of stat(2)'s result whose changes count.
struct FileSnapshot: Hashable, Sendable {
    var device: UInt64 = 0
    var inode: UInt64 = 0
    var mode: UInt32 = 0
    var user: UInt32 = 0
    var group: UInt32 = 0
    var links: UInt64 = 0
    var size: Int64 = 0
    /// In nanoseconds since 1970.
    var modified: Int64 = 0
    var changed: Int64 = 0

    /// Returns the events that explain the difference between two snapshots; `nil` means that there was no file.
    static func difference(_ before: FileSnapshot?, _ after: FileSnapshot?) -> PathEvents {
        switch (before, after) {
        case (nil, nil): return []
        case (nil, _): return .create
        case (_, nil): return .delete
        case (let before?, let after?):
            var events: PathEvents = []
            if (before.device, before.inode) != (after.device, after.inode) {
                events.formUnion([.delete, .create, .rename])
            }
            if before.modified != after.modified { events.formUnion([.write, .mtime]) }
            if before.changed != after.changed { events.insert(.ctime) }
            if after.size > before.size { events.insert(.extend) }
            if after.size < before.size { events.insert(.write) }
            if (before.mode, before.user, before.group) != (after.mode, after.user, after.group) {
                events.insert(.attrib)
            }
            if before.links != after.links { events.insert(.link) }
            return events
        }
    }
}

extension FileSnapshot {
    init(_ status: stat) {
        device = UInt64(status.st_dev)
        inode = UInt64(status.st_ino)
        mode = status.st_mode
        user = status.st_uid
        group = status.st_gid
        links = UInt64(status.st_nlink)
        size = Int64(status.st_size)
        modified = Int64(status.st_mtim.tv_sec) &* 1_000_000_000 &+ Int64(status.st_mtim.tv_nsec)
        changed = Int64(status.st_ctim.tv_sec) &* 1_000_000_000 &+ Int64(status.st_ctim.tv_nsec)
    }
}

/// An absolute path. Stored as bytes, as in the kernel.
public struct FilePath: Hashable, Sendable {
    /// The name of one entry of a directory.
    typealias Name = [UInt8]

    public let bytes: [UInt8]

    static let root = FilePath(bytes: [slash])
    private static let slash = UInt8(ascii: "/")

    private init(bytes: [UInt8]) { self.bytes = bytes }

    public init(_ text: String) { bytes = Array(text.utf8) }

    func appending(_ name: Name) -> FilePath {
        FilePath(bytes: bytes == [Self.slash] ? bytes + name : bytes + [Self.slash] + name)
    }

    /// The parent directory, for a path without links and dots. The root is its own parent.
    var parent: FilePath {
        guard let last = bytes.lastIndex(of: Self.slash), last > 0 else { return .root }
        return FilePath(bytes: Array(bytes[..<last]))
    }

    /// Returns the names of the entries in a text, without `.`.
    static func names(in bytes: [UInt8]) -> [Name] {
        bytes.split(separator: slash).map(Array.init).filter { $0 != [UInt8(ascii: ".")] }
    }

    static func isAbsolute(_ bytes: [UInt8]) -> Bool { bytes.first == slash }

    static let upwards: Name = Array("..".utf8)

    func withCString<Result>(_ body: (UnsafePointer<CChar>) -> Result) -> Result {
        (bytes + [0]).withUnsafeBytes { buffer in
            // Not empty: the buffer ends with the zero.
            body(buffer.assumingMemoryBound(to: CChar.self).baseAddress!)
        }
    }
}

extension FilePath: CustomStringConvertible {
    public var description: String { String(decoding: bytes, as: UTF8.self) }
}
