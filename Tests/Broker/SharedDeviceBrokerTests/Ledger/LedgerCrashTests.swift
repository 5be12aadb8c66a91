import Foundation
import Glibc
import SharedDevice
import Testing

@testable import SharedDeviceBroker

@Suite("kill -9 of a broker at any instant: state and ledger")
struct LedgerCrashTests {
    private let directory: TemporaryDirectory

    init() throws { directory = try TemporaryDirectory() }

    @Test("state and ledger agree after each kill, and what was answered is in them")
    func killWhileKeepingLedger() async throws {
        var answered = 0
        for _ in 0..<25 { answered += try await check(killAfter: .random(in: 1...20)) }
        #expect(answered >= 25)
    }

    /// Runs a broker until it has answered so often, kills it, and looks at what it left. Returns how many answers there were.
    private func check(killAfter count: Int) async throws -> Int {
        let path = directory.state
        // What the child does next goes on while this turns.
        let turns = Int.random(in: 0..<4_000)
        let answers = try await onThread {
            let process = Process()
            process.executableURL = URL(fileURLWithPath: Program.commitLoop.path)
            process.arguments = [path, "ledger"]
            let output = Pipe()
            process.standardOutput = output
            try process.run()
            let watchdog = Watchdog(process)
            defer { watchdog.cancel() }
            var lines = Data()
            while lines.count(where: { $0 == UInt8(ascii: "\n") }) < count {
                guard let chunk = try output.fileHandleForReading.read(upToCount: 1), !chunk.isEmpty else { break }
                lines.append(chunk)
            }
            for _ in 0..<turns { sched_yield() }
            kill(process.processIdentifier, SIGKILL)
            lines.append(output.fileHandleForReading.readDataToEndOfFile())
            process.waitUntilExit()
            #expect(process.terminationReason == .uncaughtSignal, "it ended by itself")
            return String(decoding: lines, as: UTF8.self).split(separator: "\n").map { $0.split(separator: " ") }
        }
        #expect(answers.count >= count)
        let database = try DeviceDatabase(directory: path, firstEpoch: 0)
        let state = try AccountStore(database: database).state()
        let ledger = try LedgerStore(database: database).ledger()
        // The one session that is open is the device's.
        let open = ledger.sessions.filter { $0.value.outcome == nil }.keys.sorted()
        #expect(open == (state.account == nil ? [] : [state.epoch]))
        for answer in answers {
            let epoch = try #require(UInt64(answer[1]))
            // A round that was completed long ago is forgotten.
            guard let session = ledger.sessions[epoch] else {
                let oldest = try #require(ledger.sessions.keys.min())
                #expect(epoch < ledger.sessions.keys.max() ?? 0 || epoch < oldest, "session \(epoch) is lost")
                continue
            }
            switch answer[0] {
            case "held": #expect(ledger.participations[epoch]?[String(answer[2])] != nil, "\(answer) is lost")
            case "out": #expect(session.outcome != nil, "\(answer) is lost")
            default:
                #expect(ledger.participations[epoch]?[String(answer[2])]?.progress == .finished, "\(answer) is lost")
            }
        }
        // Each sign-in and sign-out that happened is in the log, once.
        let log = AuditLog(database: database)
        let ins = try log.lines(.init(event: .signedIn)).compactMap(\.entry.session)
        let outs = try log.lines(.init(event: .signedOut)).compactMap(\.entry.session)
        #expect(Set(ins).count == ins.count && Set(outs).count == outs.count)
        #expect(ins.filter { !outs.contains($0) } == open)
        return answers.count
    }
}
