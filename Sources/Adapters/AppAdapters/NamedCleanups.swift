package import DeviceConfiguration
import FoundationEssentials
import Glibc
import SharedDevice

/// What manifests have named that an adapter has put to use, and that is not stopped and deleted yet: on the disk, because the manifest may change
/// while no adapter runs, and no later cleanup does what an earlier manifest named.
package struct NamedCleanups: Sendable {
    /// The file. Whoever removes it forgets what is in it.
    package let path: String
    private let directory: String
    /// How many bytes it may have: many manifests of the largest size. Where the adapter is the app's own user, the app may write it, too.
    private static let largest = 16 << 20

    /// - Parameter stateDirectory: the directory of the adapter's record of the app.
    package init(stateDirectory: String) {
        directory = stateDirectory
        path = "\(stateDirectory)/shared-device-named.json"
    }

    /// - Returns: none where there is no file.
    /// - Throws: ``AdapterFailure`` where nothing is known of what is left: that is not none.
    package func read() throws(AdapterFailure) -> [AppCleanup] {
        // It is not waited for, and no link is followed.
        let file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
        guard file >= 0 else {
            if errno == ENOENT { return [] }
            throw unreadable(String(cString: strerror(errno)))
        }
        defer { close(file) }
        var status = stat()
        guard fstat(file, &status) == 0 else { throw unreadable(String(cString: strerror(errno))) }
        guard status.st_mode & S_IFMT == S_IFREG, status.st_uid == geteuid(), status.st_mode & 0o022 == 0 else {
            throw unreadable("it is no file that only this user writes")
        }
        var content = Data()
        var chunk = [UInt8](repeating: 0, count: 65_536)
        while true {
            guard content.count <= Self.largest else { throw unreadable("it has more than \(Self.largest) bytes") }
            let count = Glibc.read(file, &chunk, chunk.count)
            if count == 0 { break }
            if count > 0 {
                content.append(contentsOf: chunk[..<count])
            } else if errno != EINTR {
                throw unreadable(String(cString: strerror(errno)))
            }
        }
        do {
            return try JSONDecoder().decode([AppCleanup].self, from: content)
        } catch {
            let lookup = error as? SystemUser.LookupFailure
            throw unreadable(lookup?.description ?? "it has not the form that is known of it")
        }
    }

    /// On return this, and nothing else, is on the disk.
    package func write(_ cleanups: [AppCleanup]) throws(AdapterFailure) {
        // Nothing is written where nothing is new: a disk that the data has filled must not keep the data from being deleted.
        guard try read() != cleanups else { return }
        let file = AtomicFile(path: path)
        do {
            if cleanups.isEmpty { return try file.remove() }
            try FileManager.default.createDirectory(
                atPath: directory,
                withIntermediateDirectories: true,
                attributes: [.posixPermissions: 0o700]
            )
            try file.write(JSONEncoder().encode(cleanups))
        } catch {
            throw AdapterFailure(
                "note what the manifest names, in",
                path,
                systemReason(error),
                remedy: "Make its directory writable, and free some space"
            )
        }
    }

    private func unreadable(_ reason: String) -> AdapterFailure {
        AdapterFailure(
            "see what earlier manifests named that is left, in",
            path,
            reason,
            remedy: "Make it readable; or delete by hand what they named, and remove the file"
        )
    }
}
