import Basics
import CommandParts
import DBus
import Dispatch
import FoundationEssentials
import Glibc
@_spi(Extensions) import SharedDevice
import Synchronization

/// A line of the output. The properties' names are the JSON's keys, which programs rely on.
struct FollowLine: Encodable {
    struct Person: Encodable {
        let identifier: String
        let username: String
        let displayName: String?
        let folder: String?

        init(_ account: Account) {
            (identifier, username, displayName) = (account.identifier, account.username, account.displayName)
            folder = account.directoryName
        }
    }

    let state: String
    /// Why no data may be shown, in one word.
    var reason: String?
    /// The reason for people.
    var message: String?
    var account: Person?
    /// The number of a cleanup, which the reader's response has to contain.
    var number: Int?
    var step: String?
    var accounts: [Person]?
}

extension FollowLine {
    init(_ state: AccountState) {
        switch state {
        case .nobody: self.init(state: "nobody")
        case .open(let account): self.init(state: "open", account: Person(account))
        case .hidden(let reason): self.init(state: "hidden", reason: reason.word, message: reason.description)
        }
    }
}

extension AccountState.HiddenReason {
    fileprivate var word: String {
        switch self {
        case .starting: "starting"
        case .changing: "changing"
        case .cleanupFailed: "cleanup-failed"
        case .unknown: "unknown"
        case .appFailed: "app-failed"
        case .stopped: "stopped"
        }
    }
}

/// Standard output, with a JSON object on each line. The command ends if the reader has gone, or does not read.
final class FollowOutput: Sendable {
    private struct Trouble: Sendable {
        let reason: String
        /// Whether the reader shows no state any more.
        let isReaderGone: Bool
    }

    /// How long the reader may read nothing while its pipe is full, in milliseconds.
    private static let patience: CInt = 10_000
    /// A pipe that is ready accepts this many bytes (PIPE_BUF), so that no write blocks.
    private static let piece = 4096

    private let queue = DispatchQueue(label: "shared-device.follow.output")
    private let trouble = Locked<Trouble?>(nil)
    private let onFailure: @Sendable () -> Void

    /// - Parameter onFailure: Called on any thread, possibly several times, when the output is no longer read.
    init(onFailure: @escaping @Sendable () -> Void) { self.onFailure = onFailure }

    /// Why the command has to end; `nil` while its output is read.
    var failure: CommandFailure? { trouble.withLock { $0 }.map { CommandFailure(EX_IOERR, $0.reason) } }

    /// Writes a state. Throws if the reader may show another one. A reader that has gone shows no state any more.
    func show(_ state: AccountState) async throws {
        await write(FollowLine(state))
        if let trouble = trouble.withLock({ $0 }), !trouble.isReaderGone { throw Problem(trouble.reason) }
    }

    /// Writes a line. Returns when the kernel has it, or when the output is not read.
    func write(_ line: FollowLine) async {
        await withCheckedContinuation { continuation in
            queue.async { [self] in
                writeHere(line)
                continuation.resume()
            }
        }
    }

    /// Watches for the end of the output's reader and of `input`'s writer. A file and `/dev/null` have neither.
    func watch(input: CInt?, onEnd: @escaping @Sendable () -> Void) {
        let watcher = QuietThread.start("follow-hangup") { [self] in
            // With no events requested, the kernel reports only hang-ups and errors.
            var ends = [STDOUT_FILENO, input ?? -1].map { pollfd(fd: $0, events: 0, revents: 0) }
            while poll(&ends, nfds_t(ends.count), -1) >= 0 || errno == EINTR {
                if ends[0].revents != 0 { return readerIsGone() }
                if ends[1].revents != 0 {
                    onEnd()
                    ends[1].fd = -1
                }
            }
        }
        if watcher == nil { fail("no thread is left to watch standard output") }
    }

    private func writeHere(_ line: FollowLine) {
        guard trouble.withLock({ $0 == nil }) else { return }
        // A line consists of texts and numbers, which JSON can always represent.
        guard let text = try? Form.json(line, pretty: false) else { return fail("a state has no JSON") }
        var rest = Array("\(text)\n".utf8)[...]
        while !rest.isEmpty {
            var end = pollfd(fd: STDOUT_FILENO, events: Int16(POLLOUT), revents: 0)
            let ready = poll(&end, 1, Self.patience)
            if ready < 0, errno == EINTR { continue }
            guard ready != 0 else {
                return fail("the reader of standard output has read nothing for \(Self.patience / 1000) s")
            }
            let written = rest.prefix(Self.piece).withUnsafeBytes {
                Glibc.write(STDOUT_FILENO, $0.baseAddress, $0.count)
            }
            if written > 0 {
                rest = rest.dropFirst(written)
            } else if errno == EPIPE {
                return readerIsGone()
            } else if errno != EINTR {
                return fail("could not write the output: \(String(cString: strerror(errno)))")
            }
        }
    }

    private func readerIsGone() { fail("the reader of standard output has closed it", isReaderGone: true) }

    private func fail(_ reason: String, isReaderGone: Bool = false) {
        trouble.withLock { $0 = $0 ?? Trouble(reason: reason, isReaderGone: isReaderGone) }
        onFailure()
    }
}
