public import FoundationEssentials
import Glibc

/// File operations that survive a crash or a power cut: a file is always complete, and a deleted file stays deleted.
public enum Files {
    public struct Removed: Sendable, CustomStringConvertible {
        fileprivate var files = 0
        fileprivate var bytes = 0

        public static func += (left: inout Removed, right: Removed) {
            left.files += right.files
            left.bytes += right.bytes
        }

        public var description: String { "\(files) \(files == 1 ? "file" : "files"), \(bytes) bytes" }
    }

    /// The suffix of incomplete files. Such a file from a crash is worthless.
    public static let partialSuffix = ".partial"

    /// Creates a directory that only this user may read, with its parents. Does nothing if it exists.
    public static func makeDirectory(_ path: String) throws(FileFailure) {
        if mkdir(path, 0o700) == 0 { return }
        switch errno {
        case EEXIST: return
        case ENOENT where parent(of: path) != path:
            try makeDirectory(parent(of: path))
            guard mkdir(path, 0o700) == 0 || errno == EEXIST else { throw FileFailure("make the directory", path) }
        default: throw FileFailure("make the directory", path)
        }
    }

    /// Reads the file; `nil` if there is none.
    public static func read(_ path: String) throws(FileFailure) -> Data? {
        try ifPresent(path) { try Data(contentsOf: URL(filePath: path)) }
    }

    /// The names in a directory, sorted; empty if there is no such directory.
    public static func names(in directory: String) throws(FileFailure) -> [String] {
        try ifPresent(directory) { try FileManager.default.contentsOfDirectory(atPath: directory).sorted() } ?? []
    }

    private static func ifPresent<Content>(_ path: String, read: () throws -> Content) throws(FileFailure) -> Content? {
        guard access(path, F_OK) == 0 else {
            if errno == ENOENT { return nil }
            throw FileFailure("read", path)
        }
        do {
            return try read()
        } catch {
            throw FileFailure("read", path, reason: "\(error)")
        }
    }

    /// Writes a file atomically: readers see all of it or nothing. On return it is on the disk.
    public static func write(_ data: some DataProtocol, to path: String) throws(FileFailure) {
        let file = try PartialFile(completing: path)
        try file.append([UInt8](data))
        try file.complete()
    }

    /// Renames a file or directory on the same file system, atomically. On return the new name is on the disk.
    public static func move(_ path: String, to other: String) throws(FileFailure) {
        guard rename(path, other) == 0 else { throw FileFailure("move to \(other)", path) }
        try sync(parent(of: other))
        try sync(parent(of: path))
    }

    /// Removes a file, or a directory with all its contents. Does nothing if there is none. On return the removal is on
    /// the disk, because deleted data must not reappear after a power cut.
    @discardableResult
    public static func remove(_ path: String) throws(FileFailure) -> Removed {
        var removed = Removed()
        try remove(path, &removed)
        // Without the parent directory, there was nothing to remove.
        if access(parent(of: path), F_OK) == 0 { try sync(parent(of: path)) }
        return removed
    }

    /// Removes the entries of `directory` whose names match.
    @discardableResult
    public static func removeContents(
        of directory: String,
        where matches: (String) -> Bool = { _ in true }
    ) throws(FileFailure) -> Removed {
        var removed = Removed()
        for name in try names(in: directory) where matches(name) { try remove("\(directory)/\(name)", &removed) }
        if access(directory, F_OK) == 0 { try sync(directory) }
        return removed
    }

    private static func remove(_ path: String, _ removed: inout Removed) throws(FileFailure) {
        var status = stat()
        guard lstat(path, &status) == 0 else {
            if errno == ENOENT { return }
            throw FileFailure("remove", path)
        }
        guard status.st_mode & S_IFMT == S_IFDIR else {
            guard unlink(path) == 0 else { throw FileFailure("remove", path) }
            removed += Removed(files: 1, bytes: Int(status.st_size))
            return
        }
        for name in try names(in: path) { try remove("\(path)/\(name)", &removed) }
        guard rmdir(path) == 0 else { throw FileFailure("remove", path) }
    }

    private static func sync(_ directory: String) throws(FileFailure) {
        let folder = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard folder >= 0 else { throw FileFailure("open", directory) }
        defer { close(folder) }
        guard fsync(folder) == 0 else { throw FileFailure("sync", directory) }
    }

    private static func parent(of path: String) -> String { URL(filePath: path).deletingLastPathComponent().path }
}

/// A file that grows step by step, for instance a rendering. Until it is complete its name ends in
/// ``Files/partialSuffix``.
public final class PartialFile {
    private let path: String
    private let partial: String
    private let descriptor: CInt

    /// Creates the incomplete file for `path`.
    public init(completing path: String) throws(FileFailure) {
        self.path = path
        partial = path + Files.partialSuffix
        descriptor = open(partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { throw FileFailure("open", partial) }
    }

    deinit { close(descriptor) }

    public func append(_ bytes: [UInt8]) throws(FileFailure) {
        var rest = bytes[...]
        while !rest.isEmpty {
            let written = rest.withUnsafeBytes { write(descriptor, $0.baseAddress, $0.count) }
            guard written > 0 else {
                if errno == EINTR { continue }
                throw FileFailure("write", partial)
            }
            rest = rest.dropFirst(written)
        }
    }

    /// Gives the file its final name. On return that is on the disk.
    public func complete() throws(FileFailure) {
        guard fsync(descriptor) == 0 else { throw FileFailure("sync", partial) }
        try Files.move(partial, to: path)
    }
}

/// A file that could not be read, written or removed.
public struct FileFailure: Error, CustomStringConvertible {
    /// The attempted operation, the path, and the system's reason.
    public let description: String

    /// A failure with the reason in `errno`.
    public init(_ attempted: String, _ path: String) {
        self.init(attempted, path, reason: String(cString: strerror(errno)))
    }

    public init(_ attempted: String, _ path: String, reason: String) {
        description = "could not \(attempted) \(path): \(reason)"
    }
}
