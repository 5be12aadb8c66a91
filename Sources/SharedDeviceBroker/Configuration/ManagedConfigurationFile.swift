import Foundation
import Glibc

/// The file that the managed configuration is in.
///
/// Where the file is missing, the device is personal. That is no error, but it shows.
package struct ManagedConfigurationFile: Sendable {
    /// What the file says.
    package enum Content: Sendable, Equatable {
        /// There is no such file, or not even its directory.
        case missing
        /// This.
        case present(ManagedConfiguration)

        /// The mode that the device is to be in.
        package var mode: ManagedMode {
            switch self {
            case .missing: .personal
            case .present(let configuration): configuration.mode
            }
        }
    }

    /// Where the file is on a device, unless told otherwise.
    package static let defaultPath = "/etc/shared-device/managed-configuration.json"

    /// In bytes. What is larger is a mistake, or an attempt on the broker's memory.
    private static let maximumSize = 1_048_576

    /// The file's path.
    package let path: String

    package init(path: String = Self.defaultPath) {
        self.path = path
    }

    /// Reads the file. Blocks its thread for the file system.
    ///
    /// - Throws: `ManagedConfigurationError`: `unreadable`, `insecure`, `tooLarge`, `invalidJSON`, `wrongType`.
    package func load() throws(ManagedConfigurationError) -> Content {
        // Not blocking: somebody may have put a FIFO there.
        let descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
        guard descriptor >= 0 else {
            let code = errno
            if code == ENOENT || code == ENOTDIR { return .missing }
            throw unreadable(String(cString: strerror(code)))
        }
        defer { close(descriptor) }
        var info = stat()
        guard fstat(descriptor, &info) == 0 else { throw unreadable(String(cString: strerror(errno))) }
        guard info.st_mode & S_IFMT == S_IFREG else { throw unreadable("it is not a regular file") }
        guard info.st_mode & S_IWOTH == 0 else {
            throw ManagedConfigurationError(
                .insecure,
                file: path,
                message: "anyone may write to it, and so decide whether this device is shared",
                remedy: "run: chmod o-w \(path)"
            )
        }
        return .present(try ManagedConfiguration(json: read(descriptor), file: path))
    }

    private func read(_ descriptor: CInt) throws(ManagedConfigurationError) -> Data {
        var content = Data()
        var chunk = [UInt8](repeating: 0, count: 65_536)
        while content.count <= Self.maximumSize {
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
            message: "it has more than \(Self.maximumSize) bytes",
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
