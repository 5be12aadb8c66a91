import Basics
package import DeviceConfiguration

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
        do throws(Problem) {
            return try file.read([AppCleanup].self) ?? []
        } catch {
            throw AdapterFailure(
                "read the pending cleanups of earlier manifests, in",
                path,
                error.description,
                remedy: "Make it readable; or delete by hand the paths that they named, and remove the file"
            )
        }
    }

    /// Replaces the saved cleanups durably before it returns.
    package func write(_ cleanups: [AppCleanup]) throws(AdapterFailure) {
        // Skips an unchanged list: a disk that the data has filled must not block the deletion of that data.
        guard try read() != cleanups else { return }
        do throws(Problem) {
            try file.write(cleanups.isEmpty ? nil : cleanups)
        } catch {
            throw AdapterFailure(
                "save the program and paths of the manifest, in",
                path,
                error.description,
                remedy: "Make its directory writable, and free some space"
            )
        }
    }
}
