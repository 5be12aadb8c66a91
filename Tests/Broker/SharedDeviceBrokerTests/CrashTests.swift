import Foundation
import Glibc
import SharedDevice
import SharedDeviceBroker
import Testing

@Suite("kill -9 at any instant")
struct CrashTests {
    private let directory: TemporaryDirectory

    init() throws { directory = try TemporaryDirectory() }

    @Test("a writer that is killed again and again leaves every commit that returned, and at most one more")
    func killWhileCommitting() async throws {
        var epoch: UInt64 = 0
        for _ in 0..<40 {
            epoch = try await check(directory.state, from: epoch, killAfter: .random(in: 1...40))
        }
        #expect(epoch >= 40)
    }

    @Test("a process that is killed while it makes the database leaves one that opens")
    func killWhileCreating() async throws {
        for round in 0..<40 {
            _ = try await check(directory.file("\(round)"), from: 0, killAfter: 0)
        }
    }

    /// Starts a process that commits in a loop, kills it after it has reported that many commits, or at once, and sees
    /// that the store is sound. Returns its epoch.
    private func check(_ path: String, from before: UInt64, killAfter count: Int) async throws -> UInt64 {
        // In the child the next commit, or its start, goes on while this turns.
        let turns = Int.random(in: 0..<(count == 0 ? 40_000 : 4_000))
        let reported = try await onThread {
            let process = Process()
            process.executableURL = URL(fileURLWithPath: Program.commitLoop.path)
            process.arguments = [path]
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
            return String(decoding: lines, as: UTF8.self).split(separator: "\n").compactMap { UInt64($0) }
        }
        #expect(reported.count >= count)
        let state = try AccountStore(database: DeviceDatabase(directory: path, firstEpoch: 0)).state()
        let last = reported.last ?? before
        #expect(state.epoch == last || state.epoch == last + 1, "\(last) was reported, \(state.epoch) is stored")
        // The loop makes the device shared, then signs in and out by turns.
        #expect(state.mode == (state.epoch == 0 ? .personal : .shared))
        #expect((state.account != nil) == (state.epoch > 0 && state.epoch.isMultiple(of: 2)))
        return state.epoch
    }
}
