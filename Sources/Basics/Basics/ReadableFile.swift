public import Glibc

/// A file that is open for reading. Its ``status()`` is that of its content, even if another file has come to its path.
public struct ReadableFile: ~Copyable, Sendable {
    private let descriptor: CInt

    /// Opens the file without waiting: the path may lead to a pipe without a writer, or to a terminal.
    ///
    /// - Parameter followsLink: Whether the path may lead to a symbolic link.
    public init(_ path: String, followsLink: Bool = true) throws(FileReadError) {
        let flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (followsLink ? 0 : O_NOFOLLOW)
        let descriptor = open(path, flags)
        guard descriptor >= 0 else { throw .system(errno) }
        self.descriptor = descriptor
    }

    deinit { close(descriptor) }

    public func status() throws(FileReadError) -> stat {
        var status = stat()
        guard fstat(descriptor, &status) == 0 else { throw .system(errno) }
        return status
    }

    public func isRegular() throws(FileReadError) -> Bool { try status().st_mode & S_IFMT == S_IFREG }

    /// Reads the whole file.
    public func content(atMost limit: Int) throws(FileReadError) -> [UInt8] {
        let bytes = try prefix(limit + 1)
        guard bytes.count <= limit else { throw .tooLarge(limit) }
        return bytes
    }

    /// Reads the first `limit` bytes, or fewer if the file has fewer.
    public func prefix(_ limit: Int) throws(FileReadError) -> [UInt8] {
        var bytes: [UInt8] = []
        var chunk = [UInt8](repeating: 0, count: min(limit, 16_384))
        while bytes.count < limit {
            let count = read(descriptor, &chunk, min(chunk.count, limit - bytes.count))
            if count == 0 { break }
            if count > 0 { bytes += chunk[..<count] } else if errno != EINTR { throw .system(errno) }
        }
        return bytes
    }
}

/// The reason why a file cannot be read.
public enum FileReadError: Error, Hashable, Sendable {
    /// The error number of a system call.
    case system(CInt)
    /// The file has more bytes than this.
    case tooLarge(Int)

    /// Whether there is no such file.
    public var isMissing: Bool { self == .system(ENOENT) || self == .system(ENOTDIR) }

    public var reason: String {
        switch self {
        case .system(let code): String(cString: strerror(code))
        case .tooLarge(let limit): "it has more than \(limit) bytes"
        }
    }
}

/// Files of `/proc` that hold numbers.
public enum ProcFile {
    /// Returns the numbers in each line of a file; `nil` if the file cannot be read. Reads at most 1 MiB.
    public static func lines(_ path: String) -> [[Int64]]? {
        guard let bytes = try? ReadableFile(path).prefix(1 << 20) else { return nil }
        return bytes.split(separator: UInt8(ascii: "\n")).map { line in
            line.split(separator: UInt8(ascii: " ")).compactMap { Int64(String(decoding: $0, as: UTF8.self)) }
        }
    }
}
