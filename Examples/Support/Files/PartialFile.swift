import Glibc

/// A file that grows bit by bit, as a rendering does, under a name that says that it is not complete.
package final class PartialFile {
    private let path: String
    private let descriptor: CInt

    /// Starts the file that is to be `path`.
    package init(completing path: String) throws(FileFailure) {
        self.path = path
        descriptor = open(path + Files.partialSuffix, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { throw FileFailure("open", path + Files.partialSuffix) }
    }

    deinit { close(descriptor) }

    /// Appends to it.
    package func append(_ bytes: [UInt8]) throws(FileFailure) {
        var rest = bytes[...]
        while !rest.isEmpty {
            let written = rest.withUnsafeBytes { write(descriptor, $0.baseAddress, $0.count) }
            guard written > 0 else {
                if errno == EINTR { continue }
                throw FileFailure("write", path + Files.partialSuffix)
            }
            rest = rest.dropFirst(written)
        }
    }

    /// Gives it its name; on the disk when this returns.
    package func complete() throws(FileFailure) {
        guard fsync(descriptor) == 0 else { throw FileFailure("sync", path + Files.partialSuffix) }
        try Files.move(path + Files.partialSuffix, to: path)
    }
}
