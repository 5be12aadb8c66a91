import Glibc

/// A file that only its owner may write and everyone may read.
public struct PublicFile: Sendable {
    public let path: String

    public init(path: String) { self.path = path }

    /// Replaces the content atomically: a reader finds the old or the new one. Blocks its thread for the file system.
    ///
    /// - Parameter isOwnDirectory: Whether only this user may write to the directory. Then a draft that an earlier process
    ///   left is removed first. Elsewhere anything at the draft's name is an error: another user may have placed it.
    /// - Returns: 0, or the error number of the call that failed. The old content then stays.
    public func replace(by content: String, isOwnDirectory: Bool = false) -> CInt {
        let draft = "\(path).\(getpid())"
        if isOwnDirectory { unlink(draft) }
        // O_EXCL and O_NOFOLLOW refuse a link at this name.
        let descriptor = open(draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { return errno }
        defer {
            unlink(draft)
            close(descriptor)
        }
        let code = writeAll(content, to: descriptor)
        guard code == 0 else { return code }
        // The umask would deny others the right to read.
        guard fsync(descriptor) == 0, fchmod(descriptor, 0o644) == 0, rename(draft, path) == 0 else { return errno }
        return 0
    }
}
