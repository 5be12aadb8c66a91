import Foundation
import Glibc
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import Testing

@testable import AppAdapters

/// A FUSE file system whose server does not respond. Every user can mount one.
final class StuckFile {
    private let path: String
    private let server: ChildProcess

    static let isAllowed = Mounts.areAllowed && access("/dev/fuse", W_OK) == 0

    /// - Parameter deed: the request without a response: `open` or `read` of a file, or any `getattr` of a directory.
    init(_ path: String, _ deed: String) async throws {
        self.path = path
        let source = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "Programs/stuck-file.py").path
        server = try ChildProcess("python3", [source, path, deed])
        try await server.line { $0 == "ready" }
    }

    /// Releases the waiting processes and restores the file.
    func end() {
        server.kill()
        server.waitUntilExit()
        umount2(path, Int32(MNT_DETACH))
    }

    deinit { end() }
}

@Suite("A file system that does not respond", .enabled(if: StuckFile.isAllowed, "only root can mount here"))
struct StuckFileTests {
    @Test("an unresponsive file delays no scan, and its process is an error")
    func variables() async throws {
        let planted = try PlantedProcesses()
        // A different start time than the processes of other tests, which run at the same time.
        try planted.plant(7, start: 77, environ: "\(ProcessTree.mark)=here\0")
        let file = try await StuckFile(planted.path(7, "environ"), "read")
        func marked(patience: Duration) throws -> Set<pid_t> {
            let (user, root) = (PlantedProcesses.user, planted.directory.path)
            return try ProcessTree(by: .variable("here"), user: user, root: root, patience: patience).marked
        }
        let error = #expect(throws: AdapterFailure.self) { try marked(patience: .milliseconds(500)) }
        #expect(error?.description.contains("the process 7:") == true)
        file.end()
        try await eventually("the file is read", within: .seconds(60)) { (try? marked(patience: .seconds(60))) == [7] }
    }

    @Test("an unkillable program delays no caller and is reaped later")
    func unkillable() async throws {
        let directory = try TemporaryDirectory("unkillable")
        let path = "\(directory.path)/file"
        try "content".write(toFile: path, atomically: true, encoding: .utf8)
        let file = try await StuckFile(path, "open")
        // cat can be killed until the file system's server has read its request.
        let stuck = try await HelperProcess.output(of: "cat", [path], patience: .seconds(1), killed: .milliseconds(100))
        #expect(stuck.status == nil)
        let left = HelperProcess.own.filter {
            let words = FileManager.default.contents(atPath: "/proc/\($0)/cmdline") ?? Data()
            return words.range(of: Data(path.utf8)) != nil
        }
        #expect(left.count == 1)
        await #expect(throws: HelperProcess.Failure.self, "the program is not started a second time") {
            try await HelperProcess.output(of: "cat", [path], patience: .seconds(5))
        }
        file.end()
        try await eventually("cat is reaped", within: .seconds(60)) { HelperProcess.own.isDisjoint(with: left) }
        let again = try await HelperProcess.output(of: "cat", [path], patience: .seconds(60))
        #expect(again.status == 0 && again.text == "content")
    }

    @Test("a stuck deletion fails and is not started twice; umount -fl resolves it")
    func deletion() async throws {
        let directory = try TemporaryDirectory("stuck-deletion")
        chmod(directory.path, 0o755)
        let (data, mounted) = ("\(directory.path)/data", "\(directory.path)/data/mounted")
        for path in [data, mounted] { makeDirectory(path, owner: 65534) }
        let secret = "\(mounted)/secret"
        try writeFile("secret", to: secret, owner: 65534)
        let file = try await StuckFile(mounted, "getattr")
        let probe = try ChildProcess(ChildProcess.built("adapter-probe"), ["deletion", mounted])
        let first = try await probe.line { $0.hasPrefix("failed") }
        #expect(first.contains("has not ended within 1 s") && first.contains("umount -fl"))
        try probe.write("again")
        try await probe.line { $0.contains("is not started again") }
        _ = try await HelperProcess.output(of: "umount", ["-fl", mounted], patience: .seconds(60))
        try await eventually("the data is deleted", within: .seconds(60)) {
            let before = probe.lines.count
            try probe.write("again")
            try await eventually("the probe responds", within: .seconds(60)) { probe.lines.count > before }
            return probe.lines.last?.hasPrefix("deleted") == true
        }
        #expect(!exists(secret))
        withExtendedLifetime(file) {}
    }
}
