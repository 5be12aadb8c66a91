import AppAdapters
import Foundation
import Glibc
import NotifyCenterTestKit
import SharedDevice
import SharedDeviceTestKit
import Synchronization
import Testing

@Suite(
    "The cleanup of an earlier manifest whose change the adapter missed",
    .enabled(if: geteuid() == 0, "only root becomes another user")
)
struct EarlierManifestTests {
    private static let user: UInt32 = 65534

    /// A kiosk whose adapter was killed while its command ran, with a user's secret in its data.
    private final class Killed {
        let kiosk: Kiosk
        /// The command that the killed adapter left running.
        let command: pid_t
        var secret: String { "\(kiosk.data)/secret" }
        var other: String { "\(kiosk.directory.path)/other" }
        var record: String { "\(kiosk.directory.path)/state/shared-device-named.json" }
        var hasSecret: Bool { FileManager.default.fileExists(atPath: secret) }
        /// Whether it has ended. It may still be a zombie.
        var hasCommandEnded: Bool {
            let text = try? String(contentsOfFile: "/proc/\(command)/stat", encoding: .utf8)
            return text?.contains(") Z ") ?? true
        }

        init() async throws {
            let kiosk = try await Kiosk()
            let (data, other) = (kiosk.data, "\(kiosk.directory.path)/other")
            let user = EarlierManifestTests.user
            #expect(mkdir(other, 0o700) == 0 && chown(other, user, user) == 0 && chown(data, user, user) == 0)
            try Killed.enrolFirst(kiosk)
            let adapter = try kiosk.adapter()
            let command = try await Killed.process(kiosk)
            try "marker-of-ada".write(toFile: "\(data)/secret", atomically: false, encoding: .utf8)
            succeed(chown("\(data)/secret", user, user))
            adapter.kill()
            #expect(await adapter.exitStatus(within: .seconds(60)) == 128 + SIGKILL)
            (self.kiosk, self.command) = (kiosk, command)
        }

        static func enrolFirst(_ kiosk: Kiosk) throws {
            let script = #"echo $$ >\#(kiosk.data)/process; exec sleep 1000"#
            try kiosk.enrol(
                #"{"command": ["/bin/sh", "-c", "\#(script)"], "delete": ["\#(kiosk.data)"], "start": "always"}"#,
                user: EarlierManifestTests.user
            )
        }

        /// Changes the manifest while no adapter runs.
        func enrolSecond() throws {
            try kiosk.enrol(
                #"{"command": ["/bin/sleep", "1000"], "delete": ["\#(other)"]}"#,
                user: EarlierManifestTests.user
            )
        }

        /// The number of the command, once it differs from this one.
        static func process(_ kiosk: Kiosk, otherThan former: pid_t? = nil) async throws -> pid_t {
            let text = { (try? String(contentsOfFile: "\(kiosk.data)/process", encoding: .utf8)) ?? "" }
            let number = { text().hasSuffix("\n") ? pid_t(text().dropLast()) : nil }
            try await eventually("the command runs", within: .seconds(60)) { number().map { $0 != former } ?? false }
            return try #require(number())
        }

        func isPaid() async throws -> Bool { try await kiosk.part()?.progress == .finished }
    }

    private func end(_ adapter: ChildProcess) async {
        adapter.send(SIGTERM)
        #expect(await adapter.exitStatus(within: .seconds(60)) == 0, "\(adapter.errorText)")
    }

    @Test("the earlier target is stopped and deleted before the receipt")
    func changedMeanwhile() async throws {
        let killed = try await Killed()
        try killed.enrolSecond()
        try await killed.kiosk.endSession()
        #expect(killed.hasSecret)
        let adapter = try killed.kiosk.adapter()
        try await eventually("the debt is paid", within: .seconds(60)) { try await killed.isPaid() }
        #expect(!killed.hasSecret, "\(adapter.errorText)")
        #expect(killed.hasCommandEnded)
        await end(adapter)
    }

    @Test("the earlier target is stopped and deleted although the manifest is gone")
    func removedMeanwhile() async throws {
        let killed = try await Killed()
        succeed(unlink("\(killed.kiosk.manifests)/kiosk.json"))
        let adapter = try killed.kiosk.adapter()
        try await eventually("nothing is left, nor owed", within: .seconds(60)) {
            !killed.hasSecret && !FileManager.default.fileExists(atPath: killed.record)
        }
        #expect(killed.hasCommandEnded)
        await end(adapter)
    }

    @Test("an unchanged or temporarily unreadable manifest deletes nothing")
    func unreadManifest() async throws {
        let killed = try await Killed()
        let manifest = "\(killed.kiosk.manifests)/kiosk.json"
        try "{".write(toFile: manifest, atomically: true, encoding: .utf8)
        let adapter = try killed.kiosk.adapter()
        try await eventually("the adapter waits", within: .seconds(60)) {
            adapter.errorText.contains("no manifest of \(Kiosk.identifier)")
        }
        try Killed.enrolFirst(killed.kiosk)
        _ = try await Killed.process(killed.kiosk, otherThan: killed.command)
        #expect(killed.hasSecret, "\(adapter.errorText)")
        await end(adapter)
    }

    @Test("an unreadable record blocks the receipt until it is repaired or removed")
    func unreadableRecord() async throws {
        let killed = try await Killed()
        try "{".write(toFile: killed.record, atomically: false, encoding: .utf8)
        try await killed.kiosk.endSession()
        let adapter = try killed.kiosk.adapter()
        func isTold(_ text: String) -> Bool { text.contains(killed.record) && text.contains("Make it readable") }
        try await eventually("it is in the status", within: .seconds(60)) { isTold(try await killed.kiosk.status()) }
        #expect(isTold(adapter.errorText))
        #expect(try await killed.kiosk.device.application("org.example.control").currentRoundOwes())
        succeed(unlink(killed.record))
        // The next start tries at once. The next test covers the retry of a running adapter.
        await end(adapter)
        let next = try killed.kiosk.adapter()
        try await eventually("the debt is paid", within: .seconds(60)) { try await killed.isPaid() }
        await end(next)
    }

    @Test("an undeletable path blocks the receipt until its record is removed")
    func undeletable() async throws {
        let killed = try await Killed()
        succeed(chown(killed.kiosk.data, 0, 0))
        try killed.enrolSecond()
        try await killed.kiosk.endSession()
        let adapter = try killed.kiosk.adapter()
        func isTold(_ text: String) -> Bool {
            text.contains(killed.kiosk.data) && text.contains("to go on without, remove \(killed.record)")
        }
        try await eventually("it is in the status", within: .seconds(60)) { isTold(try await killed.kiosk.status()) }
        #expect(isTold(adapter.errorText))
        #expect(try await killed.kiosk.device.application("org.example.control").currentRoundOwes())
        succeed(unlink(killed.record))
        try await eventually("the debt is paid", within: .seconds(60)) { try await killed.isPaid() }
        #expect(killed.hasSecret, "nobody has deleted it")
        await end(adapter)
    }

    @Test("a huge record is not read and does not count as missing")
    func hugeRecord() throws {
        let directory = try TemporaryDirectory("huge")
        let named = NamedCleanups(stateDirectory: directory.path)
        let file = open(named.path, O_WRONLY | O_CREAT | O_CLOEXEC, 0o600)
        try #require(file >= 0 && ftruncate(file, 1 << 32) == 0)
        close(file)
        let error = #expect(throws: AdapterFailure.self) { try named.read() }
        #expect(error?.description.contains("bytes") == true)
    }

    @Test(
        "a record that another user owns or may write is not used",
        .enabled(if: geteuid() == 0, "only root makes files of others"),
        arguments: [(owner: uid_t(65534), mode: mode_t(0o600)), (owner: 0, mode: 0o620), (owner: 0, mode: 0o602)]
    )
    func recordOfOthers(owner: uid_t, mode: mode_t) throws {
        let directory = try TemporaryDirectory("others")
        let named = NamedCleanups(stateDirectory: directory.path)
        try "[]".write(toFile: named.path, atomically: false, encoding: .utf8)
        succeed(chmod(named.path, 0o600))
        #expect(try named.read().isEmpty)
        succeed(chown(named.path, owner, 0))
        succeed(chmod(named.path, mode))
        #expect(throws: AdapterFailure.self) { try named.read() }
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
        succeed(mkdir(data, 0o700))
        try "marker-of-ada".write(toFile: "\(data)/secret", atomically: false, encoding: .utf8)
        let adapter = Adapter(program: EndingProgram(), start: nil, paths: [data], user: geteuid(), log: { _ in })
        try await adapter.retire()
        #expect(!FileManager.default.fileExists(atPath: "\(data)/secret"))
    }
}
