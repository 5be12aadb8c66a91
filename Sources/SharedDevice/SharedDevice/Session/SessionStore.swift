import FoundationEssentials
import Glibc

/// Keeps a ``SessionRecord`` in a file of the app's own. A write is on the disk when it returns, and whole or not at all.
struct SessionStore: Sendable {
    let path: String

    /// The record as it is.
    ///
    /// - Throws: ``SharedDeviceError/Code/recordUnusable``. A record that cannot be read is not taken for an empty one: that
    ///   would forget whose data is there.
    func load() throws(SharedDeviceError) -> SessionRecord { try decode(try read()) }

    /// The file's bytes; `nil` where there is none.
    func read() throws(SharedDeviceError) -> [UInt8]? {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else {
            guard errno == ENOENT else { throw unusable("read", String(cString: strerror(errno))) }
            return nil
        }
        defer { close(descriptor) }
        var bytes: [UInt8] = []
        var chunk = [UInt8](repeating: 0, count: 4096)
        while true {
            let count = Glibc.read(descriptor, &chunk, chunk.count)
            if count == 0 { return bytes }
            if count > 0 {
                bytes += chunk[..<count]
            } else if errno != EINTR {
                throw unusable("read", String(cString: strerror(errno)))
            }
        }
    }

    /// The record that these bytes are.
    func decode(_ bytes: [UInt8]?) throws(SharedDeviceError) -> SessionRecord {
        guard let bytes else { return SessionRecord() }
        do {
            return try JSONDecoder().decode(SessionRecord.self, from: Data(bytes))
        } catch {
            throw unusable("read", "\(error)")
        }
    }

    func save(_ record: SessionRecord) throws(SharedDeviceError) {
        do {
            try makeDirectory()
            try AtomicFile(path: path).write(JSONEncoder().encode(record))
        } catch {
            throw unusable("write", "\(error)")
        }
    }

    private func makeDirectory() throws {
        try FileManager.default.createDirectory(
            atPath: AtomicFile(path: path).directory,
            withIntermediateDirectories: true,
            attributes: [.posixPermissions: 0o700]
        )
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
