import FoundationEssentials
import Glibc

/// Keeps a ``SessionRecord`` in a file of the app's own. A write is on the disk when it returns, and whole or not at all.
struct SessionStore: Sendable {
    let path: String

    /// - Throws: ``SharedDeviceError/Code/recordUnusable``. A record that cannot be read is not taken for an empty one: that
    ///   would forget whose data is there.
    func load() throws(SharedDeviceError) -> SessionRecord {
        guard access(path, F_OK) == 0 else {
            guard errno == ENOENT else { throw unusable("read", String(cString: strerror(errno))) }
            return SessionRecord()
        }
        do {
            return try JSONDecoder().decode(SessionRecord.self, from: Data(contentsOf: URL(filePath: path)))
        } catch {
            throw unusable("read", "\(error)")
        }
    }

    func save(_ record: SessionRecord) throws(SharedDeviceError) {
        do {
            try makeDirectory()
            try replace(with: JSONEncoder().encode(record))
        } catch let error as SharedDeviceError {
            throw error
        } catch {
            throw unusable("write", "\(error)")
        }
    }

    private var directory: String { URL(filePath: path).deletingLastPathComponent().path }

    private func makeDirectory() throws {
        try FileManager.default.createDirectory(
            atPath: directory,
            withIntermediateDirectories: true,
            attributes: [.posixPermissions: 0o700]
        )
    }

    /// Writes beside, forces to the disk, renames, and forces the directory: a power cut leaves the old record or the new.
    private func replace(with data: Data) throws(SharedDeviceError) {
        let temporary = path + ".new"
        let file = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
        guard file >= 0 else { throw failure("open \(temporary)") }
        defer { close(file) }
        var rest = [UInt8](data)[...]
        while !rest.isEmpty {
            let written = rest.withUnsafeBytes { write(file, $0.baseAddress, $0.count) }
            guard written > 0 else {
                if errno == EINTR { continue }
                throw failure("write \(temporary)")
            }
            rest = rest.dropFirst(written)
        }
        guard fsync(file) == 0, rename(temporary, path) == 0 else { throw failure("replace \(path)") }
        let folder = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard folder >= 0 else { throw failure("open \(directory)") }
        defer { close(folder) }
        guard fsync(folder) == 0 else { throw failure("sync \(directory)") }
    }

    private func failure(_ what: String) -> SharedDeviceError {
        unusable("write", "\(what): \(String(cString: strerror(errno)))")
    }

    private func unusable(_ deed: String, _ reason: String) -> SharedDeviceError {
        SharedDeviceError(
            .recordUnusable,
            attempted: "\(deed) the record of whose data this app holds, \(path)",
            message:
                "\(reason). Make it readable and writable; or, to start over, remove all user data of the app, then the file"
        )
    }
}
