import Foundation
import Glibc

/// A file that an administrator writes and the broker believes.
struct AdministratorFile {
    /// The file's path.
    let path: String
    /// In bytes. What is larger is a mistake, or an attempt on the broker's memory.
    let maximumSize: Int
    /// What another user could decide by writing to the file: the end of the error's sentence.
    let decides: String

    /// The content of the file; `nil` if the file or its directory is missing. Blocks the thread on the file system.
    ///
    /// - Throws: `ManagedConfigurationError`: `unreadable`, `insecure`, `tooLarge`.
    func read() throws(ManagedConfigurationError) -> Data? {
        // Opened without blocking: the path may lead to a FIFO.
        let descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
        guard descriptor >= 0 else {
            let code = errno
            if code == ENOENT || code == ENOTDIR { return nil }
            throw unreadable(String(cString: strerror(code)))
        }
        defer { close(descriptor) }
        var info = stat()
        guard fstat(descriptor, &info) == 0 else { throw unreadable(String(cString: strerror(errno))) }
        guard info.st_mode & S_IFMT == S_IFREG else { throw unreadable("it is not a regular file") }
        guard info.st_mode & S_IWOTH == 0 else { throw .writableByAnyone(path, decides: decides) }
        return try read(descriptor)
    }

    private func read(_ descriptor: CInt) throws(ManagedConfigurationError) -> Data {
        var content = Data()
        var chunk = [UInt8](repeating: 0, count: 65_536)
        while content.count <= maximumSize {
            let count = Glibc.read(descriptor, &chunk, chunk.count)
            if count == 0 { return content }
            if count > 0 {
                content.append(contentsOf: chunk[..<count])
            } else if errno != EINTR {
                throw unreadable(String(cString: strerror(errno)))
            }
        }
        throw ManagedConfigurationError(
            .tooLarge,
            file: path,
            message: "it has more than \(maximumSize) bytes",
            remedy: "see that it is the right file"
        )
    }

    private func unreadable(_ message: String) -> ManagedConfigurationError {
        ManagedConfigurationError(
            .unreadable,
            file: path,
            message: message,
            remedy: "make it a regular file that the broker's user may read"
        )
    }
}

extension ManagedConfigurationError {
    static func writableByAnyone(_ path: String, decides: String) -> ManagedConfigurationError {
        ManagedConfigurationError(
            .insecure,
            file: path,
            message: "anyone may write to it, and so decide \(decides)",
            remedy: "run: chmod o-w \(path)"
        )
    }

    static func cannotWatch(_ path: String, _ error: DirectoryWatch.Errno) -> ManagedConfigurationError {
        ManagedConfigurationError(
            .cannotWatch,
            file: path,
            message: "the system cannot tell of changes to it: \(error.message)",
            remedy: "raise fs.inotify.max_user_instances or max_user_watches, see that the directory may be read, and "
                + "start the broker again"
        )
    }
}
