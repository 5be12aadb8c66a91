import Basics
import CommandParts
import DBus
import Dispatch
import FoundationEssentials
import Glibc
@_spi(Extensions) import SharedDevice
import Synchronization

/// The command that deletes a person's data: a line of the shell, run once for each person. It has its own process
/// group and a timeout. Processes that it leaves in that group end with it.
struct CleanupProgram: Sendable {
    /// How long the command may take to end after SIGTERM.
    private static let grace = Duration.seconds(2)

    let command: String
    /// How long one run may take.
    let timeout: Duration
    /// Each run keeps this file locked: a run that survived its parent must not delete data that was stored since.
    let lock: String

    /// Deletes the data of these accounts, one at a time, without blocking a thread of Swift's pool. Returns the last
    /// line that the command wrote for the last account.
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
                patience: timeout,
                grace: Self.grace
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

/// The command that warns the person before the session ends by itself: a line of the shell, run for each warning, and
/// ended when the warning is over. If its last line is `stay`, the person is active.
struct EndingProgram: Sendable {
    /// How long the command may take to end after SIGTERM.
    private static let grace = Duration.seconds(2)
    /// More than any warning lasts.
    private static let patience = Duration.seconds(366 * 86_400)
    private static let longestOutput = 4096

    let command: String
    let application: SharedDeviceApplication

    /// Follows the warnings until the task is cancelled.
    func run() async {
        var running: Task<Void, Never>?
        for await end in application.sessionWarnings {
            running?.cancel()
            await running?.value
            running = nil
            guard let end else { continue }
            running = Task { await show(end) }
        }
        running?.cancel()
        await running?.value
    }

    private func show(_ end: SessionEnd) async {
        var settings = HelperProcess.Settings()
        let seconds = max(0, end.at.timeIntervalSinceNow.rounded())
        settings.environment["SHARED_DEVICE_END_REASON"] = end.reason.rawValue
        settings.environment["SHARED_DEVICE_END_LOCKS"] = end.locks ? "yes" : ""
        settings.environment["SHARED_DEVICE_ENDS_AT"] = "\(Int64(end.at.timeIntervalSince1970.rounded()))"
        settings.environment["SHARED_DEVICE_ENDS_IN"] = "\(Int64(seconds))"
        let texts = Texts(Language(environment: settings.environment) ?? .english)
        let time = String(Form.time(end.at).dropFirst(11).prefix(5))
        settings.environment["SHARED_DEVICE_END_NOTICE"] = texts.notice(of: end, at: time)
        settings.environment["SHARED_DEVICE_END_STAY"] = end.reason == .inactivity ? texts["ending.stay"] : ""
        settings.errors = .inherited
        settings.leadsGroup = true
        do throws(HelperProcess.Failure) {
            let (status, text) = try await HelperProcess.output(
                of: "/bin/sh",
                ["-c", command],
                settings,
                withErrors: false,
                limit: Self.longestOutput,
                patience: Self.patience,
                grace: Self.grace
            )
            guard !Task.isCancelled else { return }
            guard status == 0 else { return warn("the command of --ending ended with status \(status ?? -1)") }
            if text.split(separator: "\n").last == "stay" { application.noteActivity() }
        } catch {
            warn("the command of --ending: \(error)")
        }
    }
}
