import DeviceConfiguration
import DeviceStorage
import Foundation
import Glibc
import NotifyCenterTestKit
import SharedDevice
import Testing

import class NotifyCenterTestKit.ChildProcess

@testable import BrokerCore
@testable import SharedDeviceBroker

@Suite("Killing the writer at a random time")
struct CrashTests {
    private let directory: TemporaryDirectory

    init() throws { directory = try TemporaryDirectory() }

    @Test("a process that is killed while it creates the database leaves a usable one")
    func killWhileCreating() async throws {
        for turn in 0..<4 {
            // The kills are spread over the time that the creation takes on this machine now.
            let start = ContinuousClock.now
            _ = try await killed(["commit", directory.file("whole \(turn)")], afterLines: 1, within: .zero)
            let delay = ContinuousClock.now - start
            for round in 0..<4 {
                try await check(directory.file("\(turn) \(round)"), within: delay)
            }
        }
    }

    /// Kills a process that commits in a loop, and checks that the store is consistent.
    private func check(_ path: String, within delay: Duration) async throws {
        let reported = try await killed(["commit", path], afterLines: 0, within: delay).compactMap { UInt64($0) }
        let state = try DeviceDatabase(directory: path, firstEpoch: 0).device()
        let last = reported.last ?? 0
        #expect(state.epoch == last || state.epoch == last + 1, "\(last) was reported, \(state.epoch) is stored")
        // The loop makes the device shared, then alternately signs in and out.
        #expect(state.mode == (state.epoch == 0 ? .personal : .shared))
        #expect((state.account != nil) == (state.epoch > 0 && state.epoch.isMultiple(of: 2)))
    }

    @Test("a killed broker leaves consistent state and ledger with all that was confirmed")
    func killWhileKeepingLedger() async throws {
        var answered = 0
        for _ in 0..<10 { answered += try await checkLedger(killAfter: .random(in: 1...20)) }
        #expect(answered >= 10)
    }

    /// Kills a broker after this many responses, and checks the store. Returns the number of responses.
    private func checkLedger(killAfter count: Int) async throws -> Int {
        let path = directory.state
        let answers = try await killed(["ledger", path], afterLines: count, within: .milliseconds(8))
            .map { $0.split(separator: " ") }
        #expect(answers.count >= count)
        let database = try DeviceDatabase(directory: path, firstEpoch: 0)
        let content = try DeviceStore.read(database)
        let (state, ledger) = (content.device, content.ledger)
        let open = ledger.sessions.filter { $0.value.outcome == nil }.keys.sorted()
        #expect(open == (state.account == nil ? [] : [state.epoch]))
        func part(_ app: Substring, _ number: UInt64) -> CleanupLedger.Part? {
            ledger.parts[number]?[Participant(app: "\(app) (/usr/bin/\(app), uid 1000)", user: 1000)]
        }
        for answer in answers {
            let epoch = try #require(UInt64(answer[1]))
            // A round that was completed long ago is pruned.
            guard let session = ledger.sessions[epoch] else {
                let newest = try #require(ledger.sessions.keys.max())
                #expect(epoch < newest, "session \(epoch) is lost")
                continue
            }
            switch answer[0] {
            case "held": #expect(part(answer[2], epoch) != nil, "\(answer) is lost")
            case "out": #expect(session.outcome != nil, "\(answer) is lost")
            default:
                #expect(part(answer[2], epoch)?.progress == .finished, "\(answer) is lost")
            }
        }
        let ins = try database.auditLog(.init(event: .signedIn)).compactMap(\.entry.session)
        let outs = try database.auditLog(.init(event: .signedOut)).compactMap(\.entry.session)
        #expect(Set(ins).count == ins.count && Set(outs).count == outs.count)
        #expect(ins.filter { !outs.contains($0) } == open)
        return answers.count
    }

    /// Starts the program and waits until it has printed this many lines. Then kills it at a random time within
    /// `delay`, during the next commit or its start. Returns its whole output.
    private func killed(_ arguments: [String], afterLines count: Int, within delay: Duration) async throws -> [String] {
        let wait = Duration.nanoseconds(Int64.random(in: 0...max(0, Int64(delay / .nanoseconds(1)))))
        let process = try ChildProcess(Program.simulate.path, arguments)
        while process.lines.count < count, process.isRunning { try await Task.sleep(for: .milliseconds(1)) }
        try await Task.sleep(for: wait)
        process.kill()
        #expect(await process.exitStatus() == 128 + SIGKILL, "the process ended by itself: \(process.errorText)")
        return process.lines
    }
}
