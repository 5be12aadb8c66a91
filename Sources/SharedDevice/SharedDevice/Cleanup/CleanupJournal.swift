import FoundationEssentials
import Glibc

/// How far a cleanup is. Pure; ``CleanupJournalStore`` keeps it on disk, so that a run after a crash goes on with the first step
/// that is not finished.
struct CleanupJournal: Codable, Equatable {
    /// A session whose data is to go. No names for people: the journal must not keep what the cleanup is to remove.
    struct Session: Codable, Hashable {
        let account: String
        let epoch: UInt64
    }

    /// A step that need not be run again.
    struct Finished: Codable, Equatable {
        let step: String
        let result: String?
    }

    let sessions: [Session]
    private(set) var finished: [Finished] = []

    init(sessions: [Session]) { self.sessions = sessions }

    /// Whether what is finished here is finished for all of `sessions`. A session that came later has data of its own, for
    /// which every step is still to run.
    func covers(_ sessions: [Session]) -> Bool { Set(sessions).isSubset(of: self.sessions) }

    func hasFinished(_ step: String) -> Bool { finished.contains { $0.step == step } }

    mutating func finish(_ step: String, result: String?) {
        guard !hasFinished(step) else { return }
        finished.append(Finished(step: step, result: result))
    }

    /// What the steps returned, in the order of `steps`.
    func summary(of steps: [String]) -> CleanupSummary {
        CleanupSummary(
            steps: steps.map { name in
                CleanupSummary.Step(name: name, result: finished.first { $0.step == name }?.result)
            }
        )
    }
}

extension AccountChange {
    /// The sessions whose data is to go.
    var sessionsToCleanUp: [CleanupJournal.Session] {
        stale.map { CleanupJournal.Session(account: $0.account.identifier, epoch: $0.epoch) }
    }

    /// A change that needs no broker, for the programs of tests.
    package init(previous: [(account: Account, epoch: UInt64)], current: Account?, epoch: UInt64) {
        self.init(
            stale: previous.map { SessionRecord.Session(account: $0.account, epoch: $0.epoch) },
            current: current,
            epoch: epoch
        )
    }
}

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
