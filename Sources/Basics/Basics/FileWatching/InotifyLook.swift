import Glibc

/// The file system as inotify and lstat show it.
struct InotifyLook: FileSystemLook {
    /// The events of a directory's watch: new, removed and changed entries, and changes of the directory itself.
    private static let directoryEvents =
        UInt32(IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF)
        | UInt32(IN_ONLYDIR | IN_DONT_FOLLOW)
    private static let fileEvents =
        UInt32(IN_MODIFY | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF | IN_DONT_FOLLOW)

    let descriptor: CInt
    /// How many watches this look may add to those in use.
    let room: Int
    let isInUse: (Watch) -> Bool
    private var made: Set<Watch> = []

    init(descriptor: CInt, room: Int, isInUse: @escaping (Watch) -> Bool) {
        (self.descriptor, self.room, self.isInUse) = (descriptor, room, isInUse)
    }

    mutating func watch(directory: FilePath) throws(WatchFailure) -> Watch {
        try watch(directory, Self.directoryEvents)
    }

    mutating func watch(writesIn directory: FilePath) throws(WatchFailure) -> Watch {
        try watch(directory, Self.directoryEvents | UInt32(IN_MODIFY))
    }

    mutating func watch(file: FilePath) throws(WatchFailure) -> Watch { try watch(file, Self.fileEvents) }

    private mutating func watch(_ path: FilePath, _ events: UInt32) throws(WatchFailure) -> Watch {
        // Adds to the mask, because another path may need other events of the same directory.
        let watch = path.withCString { inotify_add_watch(descriptor, $0, events | UInt32(IN_MASK_ADD)) }
        guard watch >= 0 else {
            let code = errno
            throw switch code {
            case ENOENT, ENOTDIR, ELOOP, ENAMETOOLONG: .missing
            case EACCES, EPERM: .denied
            case ENOSPC: .impossible("the kernel allows no more watches; raise fs.inotify.max_user_watches")
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
