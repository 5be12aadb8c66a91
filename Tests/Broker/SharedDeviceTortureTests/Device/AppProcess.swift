import BrokerCore
import Foundation
import Glibc
import NotifyCenterTestKit

/// An app of the device over all its runs: its process, if it runs, and the commands that it has not answered.
final class AppProcess {
    let participant: Participant
    let directory: String
    private let bus: String
    private let environment: [String: String]
    private var process: ChildProcess?
    /// The content of the broker's disk before each pending command was sent, by the command's number.
    private var pending: [Int: Truth] = [:]
    private var answersTaken = 0
    private var nextNumber = 0
    private(set) var isStopped = false

    /// With several users, the last app has the same identifier as the previous one and runs as another user.
    init(number: Int, in directory: String, bus: String, mutant: String?) {
        let isSecondUser = Rights.hasUsers && number == Schedule.appCount - 1
        participant = Participant(
            app: Self.identifier(isSecondUser ? number - 1 : number),
            user: isSecondUser ? Rights.secondUser : geteuid()
        )
        self.directory = "\(directory)/app\(number)"
        self.bus = bus
        environment =
            mutant.flatMap { $0 == AdapterProcess.hidingMutant ? nil : $0 }.map { ["TORTURE_MUTANT": $0] } ?? [:]
        mkdir(self.directory, 0o700)
        if isSecondUser { chown(self.directory, participant.user, participant.user) }
    }

    /// The first app has the name that hostile clients claim.
    private static func identifier(_ number: Int) -> String {
        number == 0 ? "org.example.control" : "org.example.app\(number)"
    }

    /// Whether the process was started and not killed since.
    var isAlive: Bool { process != nil }
    /// Whether the app has responded to all commands to which it can respond.
    var isIdle: Bool { pending.isEmpty || !isAlive || isStopped }
    var sight: Sight { Sight(app: participant, directory: directory) }

    func start() throws {
        guard process == nil else { return }
        answersTaken = 0
        process = try .start(
            "torture-app",
            [participant.app, bus, directory],
            as: participant.user,
            environment: environment
        )
    }

    /// Kills the process and drops its pending commands.
    func kill() {
        process?.end()
        process = nil
        pending = [:]
        isStopped = false
    }

    func stop() {
        guard isAlive else { return }
        process?.suspend()
        isStopped = true
    }

    func resume() {
        process?.resume()
        isStopped = false
    }

    /// Sends a command. A dead process ignores it, and a stopped one reads it later.
    func tell(_ command: String, before: Truth) throws {
        guard let process else { return }
        nextNumber += 1
        pending[nextNumber] = before
        try process.write("\(nextNumber) \(command)")
    }

    /// The responses since the last call, with the content of the broker's disk before their requests.
    ///
    /// - Throws: `Monitor.Violation` if the process has ended without being killed.
    func answers() throws -> [(before: Truth, answer: [String])] {
        guard let process else { return [] }
        guard process.isRunning else {
            throw Monitor.Violation("\(participant.name) ended by itself: \(process.errorText)")
        }
        let lines = process.lines.dropFirst(answersTaken)
        answersTaken += lines.count
        return lines.compactMap { line in
            let words = line.split(separator: " ").map(String.init)
            guard let number = words.first.flatMap({ Int($0) }), let before = pending.removeValue(forKey: number)
            else { return nil }
            return (before, Array(words.dropFirst()))
        }
    }

    // MARK: Journal

    private var journalPath: String { directory + "/journal" }

    var journal: [String] {
        let text = (try? String(contentsOfFile: journalPath, encoding: .utf8)) ?? ""
        return text.split(separator: "\n").map(String.init)
    }

    /// Whether the app has deleted some data and has more to delete.
    var isDeleting: Bool { isAlive && !isStopped && journal.last?.hasPrefix("deleted") == true }

    /// Empties the journal. The app appends at the current end.
    func clearJournal() { truncate(journalPath, 0) }

    /// The sessions whose data the app may hold by its own record; `nil` without a record.
    var recordedEpochs: [UInt64]? { Self.recordedEpochs(in: directory + "/state") }

    static func recordedEpochs(in directory: String) -> [UInt64]? {
        struct Record: Decodable {
            struct Session: Decodable { let epoch: UInt64 }
            let mayHoldData: [Session]
        }
        let data = FileManager.default.contents(atPath: directory + "/shared-device-sessions.json")
        return data.flatMap { try? JSONDecoder().decode(Record.self, from: $0) }?.mayHoldData.map(\.epoch)
    }
}
