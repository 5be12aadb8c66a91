import Glibc

/// inotify on a directory that need not exist yet: until it does, its nearest ancestor that exists is watched instead.
///
/// It tells that something has happened there, not what: who reads the file afterwards knows better than a list of
/// events that may have overflowed.
struct DirectoryWatch: ~Copyable {
    /// Everything that can change what a file in the directory says, or which directory has that path.
    private static let events =
        UInt32(IN_CLOSE_WRITE | IN_MODIFY | IN_ATTRIB | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO)
        | UInt32(IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR)

    /// Readable when something has happened. Does not block.
    let descriptor: CInt
    private let directory: String
    private var watch: CInt?

    /// - Throws: The error number where inotify is not to be had: too many instances for this user, or too many files.
    init(directory: String) throws(Errno) {
        descriptor = inotify_init1(CInt(IN_CLOEXEC) | CInt(IN_NONBLOCK))
        guard descriptor >= 0 else { throw Errno(number: errno) }
        self.directory = directory
    }

    /// The C library's error number.
    struct Errno: Error {
        let number: CInt
        var message: String { String(cString: strerror(number)) }
    }

    /// Sees to it that the directory, or its nearest ancestor, is watched. To be called at the start and after events.
    ///
    /// Changes before this call may not be reported: read the file after it, not before.
    mutating func arm() throws(Errno) {
        // A directory made between the look and the watch is found by looking again. Whoever makes and removes it all the
        // time, to keep this going for ever, makes events too, and so is heard at the next call.
        for _ in 0..<16 {
            let (found, isAncestor) = try watchNearest()
            if let watch, watch != found { inotify_rm_watch(descriptor, watch) }
            watch = found
            guard isAncestor, access(directory, F_OK) == 0 else { return }
        }
    }

    private func watchNearest() throws(Errno) -> (watch: CInt, isAncestor: Bool) {
        var path = directory
        while true {
            let found = inotify_add_watch(descriptor, path, Self.events)
            if found >= 0 { return (found, path != directory) }
            let code = errno
            guard code == ENOENT || code == ENOTDIR, path != "/", path != "." else { throw Errno(number: code) }
            path = FilePathParts.parent(of: path)
        }
    }

    /// Takes the events that are waiting. Call it when `descriptor` is readable.
    func drain() {
        withUnsafeTemporaryAllocation(byteCount: 65_536, alignment: 8) { buffer in
            while read(descriptor, buffer.baseAddress, buffer.count) > 0 {}
        }
    }

    /// Ends the watch. Nothing may be called afterwards.
    consuming func end() { close(descriptor) }
}

enum FilePathParts {
    /// The directory that `path` is in.
    static func parent(of path: String) -> String {
        var path = Substring(path)
        while path.count > 1, path.hasSuffix("/") { path.removeLast() }
        guard let slash = path.lastIndex(of: "/") else { return "." }
        return slash == path.startIndex ? "/" : String(path[..<slash])
    }
}
