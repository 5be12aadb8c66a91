import FoundationEssentials
import Glibc

/// Keeps a ``CleanupJournal`` in the app's state directory.
struct CleanupJournalStore: Sendable {
    private let file: AtomicFile

    init(stateDirectory: String) { file = AtomicFile(path: "\(stateDirectory)/shared-device-cleanup.json") }

    /// The journal; `nil` where there is none or none that can be read. All steps are run again then, which is always right.
    func load() -> CleanupJournal? {
        guard let data = try? Data(contentsOf: URL(filePath: file.path)) else { return nil }
        return try? JSONDecoder().decode(CleanupJournal.self, from: data)
    }

    /// On the disk when it returns `nil`; the reason otherwise.
    func save(_ journal: CleanupJournal) -> String? {
        do {
            try FileManager.default.createDirectory(
                atPath: file.directory,
                withIntermediateDirectories: true,
                attributes: [.posixPermissions: 0o700]
            )
            try file.write(JSONEncoder().encode(journal))
            return nil
        } catch {
            return "\(error)"
        }
    }

    /// Removes the journal. Returns why that was not possible; `nil` where it is gone.
    func remove() -> String? {
        do throws(AtomicFile.Failure) {
            try file.remove()
            return nil
        } catch {
            return "\(error)"
        }
    }
}
