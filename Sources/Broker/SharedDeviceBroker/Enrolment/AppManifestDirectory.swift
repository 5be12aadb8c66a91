import DBusTransport
import Foundation
import Glibc
import Synchronization

/// The directory that the apps' manifests are in: its files whose names end in `.json` and begin with no dot.
///
/// Where the directory is missing, no app is enrolled. That is no error.
package struct AppManifestDirectory: Sendable {
    /// Where the manifests are on a device, unless told otherwise.
    package static let defaultPath = ManagedConfigurationFile().appManifestDirectory

    /// The directory's path.
    package let path: String

    package init(path: String = Self.defaultPath) {
        self.path = path
    }

    /// Reads all manifests. A bad one is among the problems, and does not hide the others. Blocks its thread for the file
    /// system.
    package func load() -> AppManifests {
        var monitor = AppManifestMonitor()
        return monitor.directoryWasRead(readings()) ?? AppManifests()
    }

    /// The manifests in force, and then each time that others are, or something else is wrong.
    ///
    /// The first update is the directory as it is at the call; from then on no change is missed. A file that becomes bad keeps
    /// its last valid manifest in force until it is good again, or removed. What follows one another quickly is one change. A
    /// reader that is late gets the latest update only, which says everything.
    ///
    /// The watch ends when the task that iterates is cancelled, or the sequence goes. One task may iterate.
    ///
    /// - Parameter quietPeriod: How long nothing must have happened in the directory before it is read.
    /// - Throws: `ManagedConfigurationError`: `cannotWatch`.
    package func updates(
        quietPeriod: Duration = .milliseconds(250)
    ) throws(ManagedConfigurationError) -> AsyncStream<AppManifests> {
        let monitor = Locked(AppManifestMonitor())
        do {
            return try DirectoryWatcher.updates(of: path, quietPeriod: quietPeriod) { watchError in
                let readings = readings()
                return monitor.withLock {
                    $0.directoryWasRead(readings, watchProblem: watchError.map { .cannotWatch(path, $0) })
                }
            }
        } catch {
            throw .cannotWatch(path, error)
        }
    }

    private func readings() -> Result<[AppManifestMonitor.Reading], ManagedConfigurationError> {
        Result { () throws(ManagedConfigurationError) in
            var readings: [AppManifestMonitor.Reading] = []
            for name in try names() {
                // A file that went away since is no manifest.
                if let reading = reading(name) { readings.append(reading) }
            }
            return readings
        }
    }

    private func reading(_ name: String) -> AppManifestMonitor.Reading? {
        let path = path.hasSuffix("/") ? path + name : path + "/" + name
        let file = AdministratorFile(path: path, maximumSize: 65_536, decides: "which program is the app")
        do throws(ManagedConfigurationError) {
            guard let content = try file.read() else { return nil }
            let manifest = try AppManifest(json: content, file: path)
            return AppManifestMonitor.Reading(name: name, path: path, manifest: .success(manifest))
        } catch {
            return AppManifestMonitor.Reading(name: name, path: path, manifest: .failure(error))
        }
    }

    private func names() throws(ManagedConfigurationError) -> [String] {
        var info = stat()
        guard stat(path, &info) == 0 else {
            let code = errno
            if code == ENOENT || code == ENOTDIR { return [] }
            throw unreadable(String(cString: strerror(code)))
        }
        guard info.st_mode & S_IWOTH == 0 else { throw .writableByAnyone(path, decides: "which apps are enrolled") }
        do {
            return try FileManager.default.contentsOfDirectory(atPath: path)
                .filter { $0.hasSuffix(".json") && !$0.hasPrefix(".") }
        } catch {
            // It may have gone since.
            guard access(path, F_OK) == 0 else { return [] }
            throw unreadable((error as NSError).localizedDescription)
        }
    }

    private func unreadable(_ message: String) -> ManagedConfigurationError {
        ManagedConfigurationError(
            .unreadable,
            file: path,
            message: message,
            remedy: "make it a directory that the broker's user may read"
        )
    }
}
