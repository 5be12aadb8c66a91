import Basics
import DBus
import Dispatch
import FoundationEssentials
import Glibc
@_spi(Extensions) import SharedDevice
import Synchronization

/// The command that deletes a person's data: a shell command, run once for each person. It has its own process group
/// and a timeout. Processes that it leaves running in that group end with it.
struct CleanupProgram: Sendable {
    /// How long the command may take to end after SIGTERM.
    private static let grace = Duration.seconds(2)

    let command: String
    /// How long one run may take.
    let timeout: Duration
    /// A file that each run keeps locked. A run that survives a killed `shared-device follow` must not delete data that
    /// was stored since.
    let lock: String

    /// Deletes the data of these accounts, one at a time, without blocking a thread of Swift's pool.
    ///
    /// - Returns: The last line that the command wrote for the last account.
    /// - Throws: ``Failure`` for the first account that it fails for.
    func run(for accounts: [Account]) async throws -> String? {
        try await withCheckedThrowingContinuation { continuation in
            DispatchQueue.global().async {
                continuation.resume(
                    with: Result {
                        var words: String?
                        for account in accounts { words = try runHere(for: account) }
                        return words
                    }
                )
            }
        }
    }

    private func runHere(for account: Account) throws(Problem) -> String? {
        guard let folder = account.directoryName else {
            throw Problem("the account's identifier is too long for the name of a folder")
        }
        let lock = try takeLock()
        // Unlocked explicitly, because processes that the command has started may have inherited the descriptor.
        defer {
            flock(lock, LOCK_UN)
            close(lock)
        }
        var settings = HelperProcess.Settings()
        settings.environment["SHARED_DEVICE_ACCOUNT"] = account.identifier
        settings.environment["SHARED_DEVICE_USERNAME"] = account.username
        settings.environment["SHARED_DEVICE_FOLDER"] = folder
        settings.errors = .inherited
        settings.third = lock
        settings.leadsGroup = true
        var words = LastLine()
        let end: HelperProcess.End
        do throws(HelperProcess.Failure) {
            end = try HelperProcess.runToEnd(
                "/bin/sh",
                ["-c", command],
                settings,
                within: HelperProcess.Patience(timeout, grace: Self.grace)
            ) { words.take($0) }
        } catch {
            throw Problem("the cleanup command: \(error)")
        }
        guard !end.isLate else {
            let outcome =
                end.status == nil
                ? "goes on although it was killed: a file system does not respond to it" : "was stopped"
            throw Problem("the cleanup command did not end within \(timeout) and \(outcome)")
        }
        guard end.status == 0 else { throw Problem("the cleanup command ended with status \(end.status ?? -1)") }
        return words.text
    }

    /// Waits for an earlier run to end, up to the timeout of a run.
    private func takeLock() throws(Problem) -> CInt {
        // The directory exists, because it contains the record of the session that is being cleaned up.
        let descriptor = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
        let opening = errno
        guard descriptor >= 0 else { throw Problem(attempting: "open \(lock)", opening) }
        let deadline = ContinuousClock.now + timeout
        while flock(descriptor, LOCK_EX | LOCK_NB) != 0 {
            let code = errno
            guard code == EINTR || code == EWOULDBLOCK, ContinuousClock.now < deadline else {
                close(descriptor)
                guard code == EWOULDBLOCK else { throw Problem(attempting: "lock \(lock)", code) }
                throw Problem("an earlier run of the cleanup command still goes on; end it (fuser \(lock))")
            }
            usleep(50_000)
        }
        return descriptor
    }
}

/// Keeps the beginning of the last line of a command's output, in bounded memory.
private struct LastLine {
    private static let longest = 200
    /// The last line that is not empty.
    private var line: [UInt8] = []
    /// The line that has not ended yet.
    private var next: [UInt8] = []

    mutating func take(_ bytes: ArraySlice<UInt8>) {
        for piece in bytes.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false).enumerated() {
            if piece.offset > 0 {
                if !next.isEmpty { line = next }
                next = []
            }
            next += piece.element.prefix(Self.longest - next.count)
        }
    }

    var text: String? {
        let last = next.isEmpty ? line : next
        return last.isEmpty ? nil : String(decoding: last, as: UTF8.self)
    }
}
