import DeviceConfiguration
import FoundationEssentials
import Glibc
@_spi(Extensions) import SharedDevice

/// A small file in the directory of an adapter's record of an app. Only this user writes it.
struct StateFile: Sendable {
    let path: String
    private let directory: String
    /// The size limit in bytes. The app can write the file too if the adapter runs as the app's user.
    private static let largest = 16 << 20

    struct Failure: Error { let reason: String }

    init(_ name: String, in directory: String) {
        self.directory = directory
        path = "\(directory)/\(name)"
    }

    /// - Returns: `nil` if there is no file.
    func read<Value: Decodable>(_ type: Value.Type) throws(Failure) -> Value? {
        // Opening must neither block nor follow a link.
        let file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
        guard file >= 0 else {
            if errno == ENOENT { return nil }
            throw Failure(reason: String(cString: strerror(errno)))
        }
        defer { close(file) }
        var status = stat()
        guard fstat(file, &status) == 0 else { throw Failure(reason: String(cString: strerror(errno))) }
        guard status.st_mode & S_IFMT == S_IFREG, status.st_uid == geteuid(), status.st_mode & 0o022 == 0 else {
            throw Failure(reason: "it is not a regular file that only this user may write")
        }
        var content = Data()
        var chunk = [UInt8](repeating: 0, count: 65_536)
        while true {
            guard content.count <= Self.largest else { throw Failure(reason: "it has more than \(Self.largest) bytes") }
            let count = Glibc.read(file, &chunk, chunk.count)
            if count == 0 { break }
            if count > 0 {
                content.append(contentsOf: chunk[..<count])
            } else if errno != EINTR {
                throw Failure(reason: String(cString: strerror(errno)))
            }
        }
        do {
            return try JSONDecoder().decode(type, from: content)
        } catch {
            let lookup = error as? SystemUser.LookupFailure
            throw Failure(reason: lookup?.description ?? "it has an unknown form")
        }
    }

    /// Writes the file durably before it returns. `nil` removes it.
    func write(_ value: (some Encodable)?) throws(Failure) {
        let file = AtomicFile(path: path)
        do {
            guard let value else { return try file.remove() }
            try FileManager.default.createDirectory(
                atPath: directory,
                withIntermediateDirectories: true,
                attributes: [.posixPermissions: 0o700]
            )
            try file.write(JSONEncoder().encode(value))
        } catch {
            throw Failure(reason: systemReason(error))
        }
    }
}
