import FoundationEssentials
import Glibc

/// A small file that is replaced whole or not at all: a crash or a power cut leaves the old content or the other. For one
/// writer at a time.
struct AtomicFile: Sendable {
    let path: String

    /// What the system refused, in the words that it has for it.
    struct Failure: Error, CustomStringConvertible {
        let description: String

        /// The failure that `errno` tells of.
        init(_ what: String) { description = "\(what): \(String(cString: strerror(errno)))" }
    }

    /// Writes beside, forces to the disk, renames, and forces the directory.
    func write(_ data: Data) throws(Failure) {
        let temporary = path + ".new"
        let file = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
        guard file >= 0 else { throw Failure("open \(temporary)") }
        defer { close(file) }
        var rest = [UInt8](data)[...]
        while !rest.isEmpty {
            let written = rest.withUnsafeBytes { Glibc.write(file, $0.baseAddress, $0.count) }
            guard written > 0 else {
                if errno == EINTR { continue }
                throw Failure("write \(temporary)")
            }
            rest = rest.dropFirst(written)
        }
        guard fsync(file) == 0, rename(temporary, path) == 0 else { throw Failure("replace \(path)") }
        try syncDirectory()
    }

    /// Removes the file and what a crash left beside it; nothing where there is none. On the disk when this returns.
    func remove() throws(Failure) {
        var removed = false
        for name in [path + ".new", path] {
            if unlink(name) == 0 {
                removed = true
            } else if errno != ENOENT, errno != ENOTDIR {
                throw Failure("remove \(name)")
            }
        }
        if removed { try syncDirectory() }
    }

    /// The directory that holds the file.
    var directory: String { URL(filePath: path).deletingLastPathComponent().path }

    private func syncDirectory() throws(Failure) {
        let folder = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard folder >= 0 else { throw Failure("open \(directory)") }
        defer { close(folder) }
        guard fsync(folder) == 0 else { throw Failure("sync \(directory)") }
    }
}
