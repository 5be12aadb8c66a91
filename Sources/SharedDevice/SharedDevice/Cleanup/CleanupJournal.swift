import Basics
import FoundationEssentials
import Glibc

/// The progress of a cleanup. A pure value; ``CleanupJournalStore`` keeps it on disk, so that a run after a crash
/// begins with the first unfinished step.
@_spi(Extensions) public struct CleanupJournal: Codable, Equatable, Sendable {
    /// A session whose data must be deleted. It contains no user names: the journal must not keep what the cleanup
    /// removes.
    @_spi(Extensions) public struct Session: Codable, Hashable, Sendable {
        @_spi(Extensions) public let account: String
        @_spi(Extensions) public let epoch: UInt64

        @_spi(Extensions) public init(account: String, epoch: UInt64) {
            self.account = account
            self.epoch = epoch
        }
    }

    @_spi(Extensions) public struct Finished: Codable, Equatable, Sendable {
        @_spi(Extensions) public let step: String
        @_spi(Extensions) public let result: String?
    }

    @_spi(Extensions) public let sessions: [Session]
    @_spi(Extensions) public private(set) var finished: [Finished] = []

    @_spi(Extensions) public init(sessions: [Session]) { self.sessions = sessions }

    /// Whether the finished steps are finished for all of `sessions`. For a later session every step still has to run.
    func covers(_ sessions: [Session]) -> Bool { Set(sessions).isSubset(of: self.sessions) }

    func hasFinished(_ step: String) -> Bool { finished.contains { $0.step == step } }

    mutating func finish(_ step: String, result: String?) {
        guard !hasFinished(step) else { return }
        finished.append(Finished(step: step, result: result))
    }

    func summary(of steps: [String]) -> CleanupSummary {
        CleanupSummary(
            steps: steps.map { name in
                CleanupSummary.Step(name: name, result: finished.first { $0.step == name }?.result)
            }
        )
    }
}

extension AccountChange {
    var sessionsToCleanUp: [CleanupJournal.Session] {
        stale.map { CleanupJournal.Session(account: $0.account.identifier, epoch: $0.epoch) }
    }

    @_spi(Extensions) public init(previous: [(account: Account, epoch: UInt64)], current: Account?, epoch: UInt64) {
        self.init(
            stale: previous.map { SessionRecord.Session(account: $0.account, epoch: $0.epoch) },
            current: current,
            epoch: epoch
        )
    }
}

struct CleanupJournalStore: Sendable {
    private let file: AtomicFile

    init(stateDirectory: String) { file = AtomicFile(path: "\(stateDirectory)/shared-device-cleanup.json") }

    /// Reads the journal; `nil` if there is none or it is unreadable. All steps then run again, which is always safe.
    func load() -> CleanupJournal? {
        guard let data = try? Data(contentsOf: URL(filePath: file.path)) else { return nil }
        return try? JSONDecoder().decode(CleanupJournal.self, from: data)
    }

    /// Writes the journal. Returns `nil` when it is on disk, or the reason for the failure.
    func save(_ journal: CleanupJournal) -> String? {
        do {
            try makePrivateDirectory(file.directory)
            try file.write(JSONEncoder().encode(journal))
            return nil
        } catch {
            return "\(error)"
        }
    }

    /// Removes the journal. Returns `nil` when it is gone, or the reason for the failure.
    func remove() -> String? {
        do throws(AtomicFile.Failure) {
            try file.remove()
            return nil
        } catch {
            return "\(error)"
        }
    }
}
