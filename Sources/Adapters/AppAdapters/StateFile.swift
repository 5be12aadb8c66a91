import Basics
package import DeviceConfiguration
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

    /// - Parameter content: what the file has, for errors.
    /// - Returns: `nil` if there is no file.
    func read<Value: Decodable>(
        _ type: Value.Type,
        _ content: String,
        remedy: String
    ) throws(AdapterFailure) -> Value? {
        func failure(_ reason: String) -> AdapterFailure {
            AdapterFailure("read \(content), in \(path): \(reason)", remedy: remedy)
        }
        let status: stat
        let bytes: [UInt8]
        do throws(FileReadError) {
            let file = try ReadableFile(path, followsLink: false)
            status = try file.status()
            bytes = status.st_mode & S_IFMT == S_IFREG ? try file.content(atMost: Self.largest) : []
        } catch {
            if error == .system(ENOENT) { return nil }
            throw failure(error.reason)
        }
        guard status.st_mode & S_IFMT == S_IFREG, status.st_uid == geteuid(), status.st_mode & 0o022 == 0 else {
            throw failure("it is not a regular file that only this user may write")
        }
        do {
            return try JSONDecoder().decode(type, from: Data(bytes))
        } catch {
            throw failure((error as? SystemUser.LookupFailure)?.description ?? "it has an unknown form")
        }
    }

    /// Writes the file durably before it returns. `nil` removes it.
    func write(_ value: (some Encodable)?, _ content: String) throws(AdapterFailure) {
        let file = AtomicFile(path: path)
        do {
            guard let value else { return try file.remove() }
            try makePrivateDirectory(directory)
            try file.write(JSONEncoder().encode(value))
        } catch {
            let remedy = "Make its directory writable, and free some space"
            throw AdapterFailure("save \(content), in \(path): \(systemReason(error))", remedy: remedy)
        }
    }
}

/// The cleanup targets from manifests that an adapter has used and that are still pending. Kept on the disk, because
/// the manifest may change while no adapter runs, and later cleanups do not cover targets of earlier manifests.
package struct NamedCleanups: Sendable {
    private let file: StateFile
    /// The file. Removing it skips the pending cleanups.
    package var path: String { file.path }

    /// - Parameter stateDirectory: the directory of the adapter's record of the app.
    package init(stateDirectory: String) { file = StateFile("shared-device-named.json", in: stateDirectory) }

    /// - Returns: an empty array if there is no file.
    /// - Throws: ``AdapterFailure`` if the file is unreadable, because then pending cleanups are unknown.
    package func read() throws(AdapterFailure) -> [AppCleanup] {
        let remedy = "Make it readable; or delete by hand the paths that they named, and remove the file"
        return try file.read([AppCleanup].self, "the pending cleanups of earlier manifests", remedy: remedy) ?? []
    }

    /// Replaces the saved cleanups durably before it returns.
    package func write(_ cleanups: [AppCleanup]) throws(AdapterFailure) {
        // Skips an unchanged list: a disk that the data has filled must not block the deletion of that data.
        guard try read() != cleanups else { return }
        try file.write(cleanups.isEmpty ? nil : cleanups, "the program and paths of the manifest")
    }
}
