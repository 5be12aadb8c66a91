import AppAdapters
import Foundation
import Glibc
import NotifyCenterTestKit
import Synchronization
import Testing

@Suite("The cleanup of an earlier manifest whose change the adapter missed", .needsRoot)
struct EarlierManifestTests {
    /// A kiosk whose adapter was killed while its command ran, with a user's secret in its data.
    private final class Killed {
        let kiosk: Kiosk
        /// The command that the killed adapter left running.
        let command: pid_t
        var record: String { "\(kiosk.directory.path)/state/shared-device-named.json" }
        var hasSecret: Bool { exists("\(kiosk.data)/secret") }
        /// Whether the command has ended, perhaps as a zombie.
        var hasCommandEnded: Bool {
            let text = try? String(contentsOfFile: "/proc/\(command)/stat", encoding: .utf8)
            return text?.contains(") Z ") ?? true
        }

        init() async throws {
            let kiosk = try await Kiosk(owner: Kiosk.user)
            try kiosk.enrolNumbered()
            let adapter = try kiosk.adapter()
            let command = try await kiosk.process()
            try writeFile("marker-of-ada", to: "\(kiosk.data)/secret", owner: Kiosk.user)
            adapter.kill()
            #expect(await adapter.exitStatus(within: .seconds(60)) == 128 + SIGKILL)
            (self.kiosk, self.command) = (kiosk, command)
        }

        /// Changes the manifest while no adapter runs.
        func enrolSecond() throws { try kiosk.enrol(Kiosk.cleanup(deleting: kiosk.other)) }

        /// Starts an adapter in a round that it cannot finish, and waits until status and log have these words.
        func blockedAdapter(_ words: String...) async throws -> ChildProcess {
            try await kiosk.endSession()
            let adapter = try kiosk.adapter()
            func isTold(_ text: String) -> Bool { words.allSatisfy { text.contains($0) } }
            try await eventually("the status has the words", within: .seconds(60)) { isTold(try await kiosk.status()) }
            #expect(isTold(adapter.errorText))
            #expect(try await kiosk.owes())
            return adapter
        }
    }

    @Test("the target of a changed or removed manifest is stopped and deleted", arguments: ["changed", "removed"])
    func changedMeanwhile(manifest: String) async throws {
        let killed = try await Killed()
        if manifest == "changed" {
            try killed.enrolSecond()
            try await killed.kiosk.endSession()
        } else {
            succeed(unlink("\(killed.kiosk.manifests)/kiosk.json"))
        }
        #expect(killed.hasSecret)
        let adapter = try killed.kiosk.adapter()
        if manifest == "changed" { try await killed.kiosk.waitUntilFinished() }
        if manifest == "removed" {
            try await eventually("nothing is left, nor owed", within: .seconds(60)) {
                !killed.hasSecret && !exists(killed.record)
            }
        }
        #expect(!killed.hasSecret && killed.hasCommandEnded, "\(adapter.errorText)")
        await adapter.end()
    }

    @Test("an unchanged or temporarily unreadable manifest deletes nothing")
    func unreadManifest() async throws {
        let killed = try await Killed()
        try "{".write(toFile: "\(killed.kiosk.manifests)/kiosk.json", atomically: true, encoding: .utf8)
        let adapter = try killed.kiosk.adapter()
        try await eventually("the adapter waits", within: .seconds(60)) {
            adapter.errorText.contains("no manifest of \(Kiosk.identifier)")
        }
        try killed.kiosk.enrolNumbered()
        _ = try await killed.kiosk.process(otherThan: killed.command)
        #expect(killed.hasSecret, "\(adapter.errorText)")
        await adapter.end()
    }

    @Test("an unreadable record blocks the receipt until it is repaired or removed")
    func unreadableRecord() async throws {
        let killed = try await Killed()
        try "{".write(toFile: killed.record, atomically: false, encoding: .utf8)
        let adapter = try await killed.blockedAdapter(killed.record, "Make it readable")
        succeed(unlink(killed.record))
        // The next start tries at once. The next test covers the retry of a running adapter.
        await adapter.end()
        let next = try killed.kiosk.adapter()
        try await killed.kiosk.waitUntilFinished()
        await next.end()
    }

    @Test("an undeletable path blocks the receipt until its record is removed")
    func undeletable() async throws {
        let killed = try await Killed()
        let (data, record) = (killed.kiosk.data, killed.record)
        succeed(chown(data, 0, 0))
        try killed.enrolSecond()
        let adapter = try await killed.blockedAdapter(data, "to go on without, remove \(record)")
        succeed(unlink(record))
        try await killed.kiosk.waitUntilFinished()
        #expect(killed.hasSecret, "the secret has not been deleted")
        await adapter.end()
    }

    @Test("an unreadable record, or one that others may write, does not count as missing")
    func unusableRecord() throws {
        let directory = try TemporaryDirectory("record")
        let named = NamedCleanups(stateDirectory: directory.path)
        try writeFile("[]", to: named.path)
        succeed(chmod(named.path, 0o600))
        #expect(try named.read().isEmpty)
        for (owner, mode) in [(65534, 0o600), (0, 0o620), (0, 0o602)] as [(uid_t, mode_t)] {
            succeed(chown(named.path, owner, 0))
            succeed(chmod(named.path, mode))
            #expect(throws: AdapterFailure.self, "\(owner), \(mode)") { try named.read() }
        }
        #expect(throws: AdapterFailure.self, "below a file") { try NamedCleanups(stateDirectory: named.path).read() }
        succeed(chmod(named.path, 0o600))
        succeed(truncate(named.path, 1 << 32))
        let error = #expect(throws: AdapterFailure.self) { try named.read() }
        #expect(error?.description.contains("bytes") == true)
    }

    /// A program that exits by itself between the first and the second check.
    private final class EndingProgram: ProgramControl {
        private let questions = Atomic(0)
        let name = "a program"

        func isStopped() async throws(AdapterFailure) -> Bool { questions.add(1, ordering: .relaxed).oldValue > 0 }
        func stop() async throws(AdapterFailure) {}
        func start() async throws(AdapterFailure) {}
    }

    @Test("a program that exits during the check is still cleaned up")
    func endInBetween() async throws {
        let directory = try TemporaryDirectory("ending")
        let data = "\(directory.path)/data"
        try writeFile("marker-of-ada", to: "\(data)/secret")
        let adapter = Adapter(program: EndingProgram(), start: nil, paths: [data], user: geteuid(), log: { _ in })
        try await adapter.retire()
        #expect(!exists("\(data)/secret"))
    }
}
