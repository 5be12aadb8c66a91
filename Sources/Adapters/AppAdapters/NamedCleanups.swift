package import DeviceConfiguration

/// What manifests have named that an adapter has put to use, and that is not stopped and deleted yet: on the disk, because the manifest may change
/// while no adapter runs, and no later cleanup does what an earlier manifest named.
package struct NamedCleanups: Sendable {
    private let file: StateFile
    /// The file. Whoever removes it forgets what is in it.
    package var path: String { file.path }

    /// - Parameter stateDirectory: the directory of the adapter's record of the app.
    package init(stateDirectory: String) { file = StateFile("shared-device-named.json", in: stateDirectory) }

    /// - Returns: none where there is no file.
    /// - Throws: ``AdapterFailure`` where nothing is known of what is left: that is not none.
    package func read() throws(AdapterFailure) -> [AppCleanup] {
        do throws(StateFile.Failure) {
            return try file.read([AppCleanup].self) ?? []
        } catch {
            throw AdapterFailure(
                "see what earlier manifests named that is left, in",
                path,
                error.reason,
                remedy: "Make it readable; or delete by hand what they named, and remove the file"
            )
        }
    }

    /// On return this, and nothing else, is on the disk.
    package func write(_ cleanups: [AppCleanup]) throws(AdapterFailure) {
        // Nothing is written where nothing is new: a disk that the data has filled must not keep the data from being deleted.
        guard try read() != cleanups else { return }
        do throws(StateFile.Failure) {
            try file.write(cleanups.isEmpty ? nil : cleanups)
        } catch {
            throw AdapterFailure(
                "note what the manifest names, in",
                path,
                error.reason,
                remedy: "Make its directory writable, and free some space"
            )
        }
    }
}
