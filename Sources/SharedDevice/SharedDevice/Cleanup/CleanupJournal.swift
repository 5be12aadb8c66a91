import FoundationEssentials
import Glibc

/// The progress of a cleanup. Pure; ``CleanupJournalStore`` keeps it on disk, so that a run after a crash begins with the first step that is
/// not finished.
package struct CleanupJournal: Codable, Equatable {
    /// A session whose data has to go. It has no names of persons: the journal must not keep what the cleanup removes.
    package struct Session: Codable, Hashable {
        package let account: String
        package let epoch: UInt64

        package init(account: String, epoch: UInt64) {
            self.account = account
            self.epoch = epoch
        }
    }

    /// A finished step.
    package struct Finished: Codable, Equatable {
        package let step: String
        package let result: String?
    }

    package let sessions: [Session]
    package private(set) var finished: [Finished] = []

    package init(sessions: [Session]) { self.sessions = sessions }

    /// Whether the finished steps are finished for all of `sessions`. For a later session every step still has to run.
    func covers(_ sessions: [Session]) -> Bool { Set(sessions).isSubset(of: self.sessions) }

    func hasFinished(_ step: String) -> Bool { finished.contains { $0.step == step } }

    mutating func finish(_ step: String, result: String?) {
        guard !hasFinished(step) else { return }
        finished.append(Finished(step: step, result: result))
    }

    /// The results of the steps, in the order of `steps`.
    func summary(of steps: [String]) -> CleanupSummary {
        CleanupSummary(
            steps: steps.map { name in
                CleanupSummary.Step(name: name, result: finished.first { $0.step == name }?.result)
            }
        )
    }
}

extension AccountChange {
    /// The sessions whose data has to go.
    var sessionsToCleanUp: [CleanupJournal.Session] {
        stale.map { CleanupJournal.Session(account: $0.account.identifier, epoch: $0.epoch) }
    }

    /// A change without a broker, for test programs.
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

    /// The journal; `nil` if there is none, or it cannot be read. Then all steps run again, which is always right.
    func load() -> CleanupJournal? {
        guard let data = try? Data(contentsOf: URL(filePath: file.path)) else { return nil }
        return try? JSONDecoder().decode(CleanupJournal.self, from: data)
    }

    /// Writes the journal. Returns `nil` once it is on the disk, or the reason why it is not.
    func save(_ journal: CleanupJournal) -> String? {
        do {
            try makePrivateDirectory(file.directory)
            try file.write(JSONEncoder().encode(journal))
            return nil
        } catch {
            return "\(error)"
        }
    }

    /// Removes the journal. Returns `nil` once it is gone, or the reason why it is not.
    func remove() -> String? {
        do throws(AtomicFile.Failure) {
            try file.remove()
            return nil
        } catch {
            return "\(error)"
        }
    }
}
