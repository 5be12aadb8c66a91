import Glibc

/// A small file that is replaced in one step: a reader, also after a crash or a power cut, finds the old or the new
/// content. It supports one writer at a time. Blocks its thread for the file system.
public struct AtomicFile: Sendable {
    public enum Readers: Sendable {
        case owner
        case everyone
    }

    public let path: String
    private let readers: Readers
    private let isOwnDirectory: Bool

    /// The file at this path, which need not exist. Its directory must exist.
    ///
    /// - Parameters:
    ///   - readers: Who may read the file. Only its owner may write to it.
    ///   - isOwnDirectory: Whether only this user may write to the directory. If so, a draft that an earlier process
    ///     left is removed first. Otherwise any file at the draft's name is an error: another user may have placed it.
    public init(path: String, readers: Readers = .owner, isOwnDirectory: Bool = true) {
        (self.path, self.readers, self.isOwnDirectory) = (path, readers, isOwnDirectory)
    }

    /// A failed system call and the reason.
    public struct Failure: Error, CustomStringConvertible {
        /// The error number.
        public let code: CInt
        private let attempted: String

        fileprivate init(_ attempted: String, _ code: CInt = errno) { (self.attempted, self.code) = (attempted, code) }

        /// The system's text for the error number.
        public var reason: String { String(cString: strerror(code)) }

        public var description: String { "\(attempted): \(reason)" }
    }

    public var directory: String { parentDirectory(of: path) }

    /// Writes a draft, forces it to the disk, and renames it. If only this user may write to the directory, this also
    /// forces the directory to the disk. After an error the old content is still there, unless that last step failed.
    public func write(_ content: some Sequence<UInt8>) throws(Failure) {
        if isOwnDirectory { unlink(draft) }
        // O_EXCL and O_NOFOLLOW refuse a link at this name.
        let file = open(draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o600)
        guard file >= 0 else { throw Failure("open \(draft)") }
        defer { close(file) }
        let code = Array(content).withUnsafeBytes { writeAll($0, to: file) }
        // The umask may have removed rights.
        guard code == 0, fchmod(file, readers == .owner ? 0o600 : 0o644) == 0, fsync(file) == 0,
            rename(draft, path) == 0
        else {
            let failure = Failure("replace \(path)", code == 0 ? errno : code)
            unlink(draft)
            throw failure
        }
        if isOwnDirectory { try syncDirectory() }
    }

    /// Removes the file and a draft that a crash left, if they exist. On return the removal is on disk.
    public func remove() throws(Failure) {
        var removed = false
        for name in [draft, path] {
            if unlink(name) == 0 {
                removed = true
            } else if errno != ENOENT, errno != ENOTDIR {
                throw Failure("remove \(name)")
            }
        }
        if removed { try syncDirectory() }
    }

    /// In a directory of this user alone the name is fixed, so that the next writer finds the draft that a crash left.
    private var draft: String { isOwnDirectory ? path + ".new" : "\(path).\(getpid())" }

    private func syncDirectory() throws(Failure) {
        let folder = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard folder >= 0 else { throw Failure("open \(directory)") }
        defer { close(folder) }
        guard fsync(folder) == 0 else { throw Failure("sync \(directory)") }
    }
}

/// The directory that contains the path's last part: `.` for a single name.
public func parentDirectory(of path: String) -> String {
    var path = Substring(path)
    while path.utf8.count > 1, path.hasSuffix("/") { path.removeLast() }
    guard let slash = path.lastIndex(of: "/") else { return "." }
    return slash == path.startIndex ? "/" : String(path[..<slash])
}
