import Foundation
import Glibc
import NotifyCenterTestKit
import SharedDevice
import Testing

extension Trait where Self == ConditionTrait {
    static var needsRoot: Self { .enabled(if: geteuid() == 0, "only root becomes another user") }
    static var needsMounts: Self { .enabled(if: Mounts.areAllowed, "this user may not mount") }
}

enum Mounts {
    static let areAllowed: Bool = {
        guard geteuid() == 0, let directory = try? TemporaryDirectory("mounts") else { return false }
        guard mount("none", directory.path, "tmpfs", 0, nil) == 0 else { return false }
        return umount2(directory.path, 0) == 0
    }()
}

/// Records an issue if a system call of a test's set-up failed. A function, because `#expect` is slow to compile and
/// there are many calls.
func succeed(_ status: CInt, file: String = #fileID, path: String = #filePath, line: Int = #line) {
    guard status != 0 else { return }
    let location = SourceLocation(fileID: file, filePath: path, line: line, column: 1)
    Issue.record("a call has failed: \(String(cString: strerror(errno)))", sourceLocation: location)
}

// MARK: Files

/// Makes a directory, and gives it to a user.
func makeDirectory(_ path: String, mode: mode_t = 0o700, owner: uid_t? = nil) {
    succeed(mkdir(path, mode))
    if let owner { succeed(chown(path, owner, owner)) }
}

/// Writes a file, after the directories above it, and gives the file to a user.
func writeFile(_ text: String, to path: String, owner: uid_t? = nil) throws {
    let folder = URL(fileURLWithPath: path).deletingLastPathComponent().path
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    try text.write(toFile: path, atomically: false, encoding: .utf8)
    if let owner { succeed(chown(path, owner, owner)) }
}

func exists(_ path: String) -> Bool { FileManager.default.fileExists(atPath: path) }

/// The names in a directory, sorted; none if it cannot be read.
func names(in path: String) -> [String] {
    ((try? FileManager.default.contentsOfDirectory(atPath: path)) ?? []).sorted()
}

/// The process number that a command has written into its data; `nil` until it has.
func processNumber(in data: String) -> pid_t? {
    let text = (try? String(contentsOfFile: "\(data)/process", encoding: .utf8)) ?? ""
    return text.hasSuffix("\n") ? pid_t(text.dropLast()) : nil
}

/// Counts for the checkpoints of a deletion. Unchecked: the deletion calls them on the test's own thread.
final class Counts: @unchecked Sendable {
    var calls = 0
    /// The largest number of descriptors in the tree.
    var descriptors = 0
}

// MARK: Processes

extension ChildProcess {
    /// Asks the process to end, and expects that it succeeds.
    func end() async {
        send(SIGTERM)
        let status = await exitStatus(within: .seconds(60))
        #expect(status == 0, "\(errorText)")
    }

    /// Whether the kernel's record of the process has this state, for instance `T` for a stopped process.
    func isInState(_ letter: Character) throws -> Bool {
        try String(contentsOfFile: "/proc/\(identifier)/stat", encoding: .utf8).contains(") \(letter) ")
    }
}

extension SharedDeviceApplication {
    func currentRoundOwes() async throws -> Bool { try await cleanupReport()?.isComplete == false }
}
