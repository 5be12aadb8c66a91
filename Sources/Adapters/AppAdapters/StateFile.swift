import Basics
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

    init(_ name: String, in directory: String) {
        self.directory = directory
        path = "\(directory)/\(name)"
    }

    /// - Returns: `nil` if there is no file.
    func read<Value: Decodable>(_ type: Value.Type) throws(Problem) -> Value? {
        guard let content = try content() else { return nil }
        do {
            return try JSONDecoder().decode(type, from: content)
        } catch {
            let lookup = error as? SystemUser.LookupFailure
            throw Problem(lookup?.description ?? "it has an unknown form")
        }
    }

    private func content() throws(Problem) -> Data? {
        let status: stat
        let content: [UInt8]
        do throws(FileReadError) {
            let file = try ReadableFile(path, followsLink: false)
            status = try file.status()
            let isFile = status.st_mode & S_IFMT == S_IFREG
            content = isFile ? try file.content(atMost: Self.largest) : []
        } catch {
            if error == .system(ENOENT) { return nil }
            throw Problem(error.reason)
        }
        guard status.st_mode & S_IFMT == S_IFREG, status.st_uid == geteuid(), status.st_mode & 0o022 == 0 else {
            throw Problem("it is not a regular file that only this user may write")
        }
        return Data(content)
    }

    /// Writes the file durably before it returns. `nil` removes it.
    func write(_ value: (some Encodable)?) throws(Problem) {
        let file = AtomicFile(path: path)
        do {
            guard let value else { return try file.remove() }
            try makePrivateDirectory(directory)
            try file.write(JSONEncoder().encode(value))
        } catch {
            throw Problem(systemReason(error))
        }
    }
}
