import Basics
import CommandParts
import DBus
import Dispatch
import FoundationEssentials
import Glibc
import SharedDevice
import Synchronization

/// A line on standard input.
private enum FollowInput {
    /// A step of a cleanup is done, with its result for people, or it has failed.
    case answer(number: Int, Result<String?, Problem>)
    /// A person uses the app.
    case activity

    private struct Fields: Decodable {
        let done: Int?
        let failed: Int?
        let activity: Bool?
        let detail: String?
        let reason: String?
    }

    /// Reads a line: `{"done": 7, "detail": "3 files"}`, `{"failed": 7, "reason": "…"}` or `{"activity": true}`.
    init(_ line: [UInt8]) throws(Problem) {
        let fields: Fields
        do {
            fields = try JSONDecoder().decode(Fields.self, from: Data(line))
        } catch {
            throw Problem("it is no JSON object with “done” or “failed” and the number of the cleanup, or “activity”")
        }
        switch (fields.done, fields.failed, fields.activity) {
        case (let number?, nil, nil): self = .answer(number: number, .success(fields.detail))
        case (nil, let number?, nil): self = .answer(number: number, .failure(Problem(fields.reason ?? "it failed")))
        case (nil, nil, true): self = .activity
        default: throw Problem("it needs one of “done”, “failed” and “activity”")
        }
    }
}

/// Splits input into lines. A line that is too long is skipped but counted, so that the next line is read. Pure.
private struct BoundedLines {
    /// In bytes.
    static let longest = 65_536

    private var pending: [UInt8] = []
    private var isTooLong = false

    /// The lines that `bytes` complete; `nil` stands for a line that was too long.
    mutating func take(_ bytes: ArraySlice<UInt8>) -> [[UInt8]?] {
        var lines: [[UInt8]?] = []
        var rest = bytes
        while let end = rest.firstIndex(of: UInt8(ascii: "\n")) {
            add(rest[..<end])
            lines.append(isTooLong ? nil : pending)
            (pending, isTooLong) = ([], false)
            rest = rest[(end + 1)...]
        }
        add(rest)
        return lines
    }

    private mutating func add(_ bytes: ArraySlice<UInt8>) {
        guard !isTooLong, pending.count + bytes.count <= Self.longest else {
            (pending, isTooLong) = ([], true)
            return
        }
        pending += bytes
    }
}

/// Asks the reader of the output to delete data, and reads its responses, and its activity, on standard input.
final class FollowAnswers: Sendable {
    private typealias Waiting = CheckedContinuation<Result<String?, Problem>, Never>

    private struct State {
        var next = 1
        var waiting: [Int: Waiting] = [:]
        var hasEnded = false
    }

    private static let ended = Problem("standard input has ended, so the reader cannot report that the data is gone")

    private let state = Locked(State())
    private let output: FollowOutput
    private let timeout: Duration
    private let onActivity: @Sendable () -> Void
    private let onEnd: @Sendable () -> Void

    /// - Parameter timeout: How long a response may take. The closures are called on the reading thread.
    init(
        output: FollowOutput,
        timeout: Duration,
        onActivity: @escaping @Sendable () -> Void,
        onEnd: @escaping @Sendable () -> Void
    ) { (self.output, self.timeout, self.onActivity, self.onEnd) = (output, timeout, onActivity, onEnd) }

    /// Asks for a deletion, and waits for the response, whose detail it returns.
    func ask(_ step: String, _ accounts: [Account]) async throws(Problem) -> String? {
        let number = state.withLock { state in
            defer { state.next += 1 }
            return state.next
        }
        let late = Problem("no response to number \(number) within \(timeout)")
        return try await withCheckedContinuation { (continuation: Waiting) in
            // Before the line is written, because the response may come at once.
            let isOpen = state.withLock { state in
                if !state.hasEnded { state.waiting[number] = continuation }
                return !state.hasEnded
            }
            guard isOpen else { return continuation.resume(returning: .failure(Self.ended)) }
            DispatchQueue.global().asyncAfter(deadline: .now() + timeout / .seconds(1)) { [weak self] in
                _ = self?.settle(number, .failure(late))
            }
            Task { [output] in
                let people = accounts.map(FollowLine.Person.init)
                await output.write(FollowLine(state: "cleanup", number: number, step: step, accounts: people))
                if let failure = output.failure { settle(number, .failure(Problem(failure.description))) }
            }
        }.get()
    }

    /// Reads responses on its own thread until the descriptor ends. Standard error reports an invalid line.
    func read(_ descriptor: CInt) {
        let reader = QuietThread.start("follow-answers") { [self] in
            var (lines, count) = (BoundedLines(), 0)
            var buffer = [UInt8](repeating: 0, count: 65_536)
            while true {
                let length = Glibc.read(descriptor, &buffer, buffer.count)
                if length < 0, errno == EINTR { continue }
                guard length > 0 else { break }
                for line in lines.take(buffer[..<length]) {
                    count += 1
                    if let flaw = take(line) { warn("line \(count) of standard input: \(flaw)") }
                }
            }
            end()
        }
        guard reader == nil else { return }
        warn("no thread is left to read standard input")
        end()
    }

    /// - Returns: The problem with the line; `nil` if it was expected.
    private func take(_ line: [UInt8]?) -> String? {
        guard let line else { return "it has more than \(BoundedLines.longest) bytes, and is left out" }
        do throws(Problem) {
            switch try FollowInput(line) {
            case .activity: onActivity()
            case .answer(let number, let result):
                if !settle(number, result) { return "nothing waits for a response to number \(number)" }
            }
            return nil
        } catch {
            return "\(error)"
        }
    }

    @discardableResult
    private func settle(_ number: Int, _ result: Result<String?, Problem>) -> Bool {
        let waiting = state.withLock { $0.waiting.removeValue(forKey: number) }
        waiting?.resume(returning: result)
        return waiting != nil
    }

    private func end() {
        let waiting = state.withLock { state in
            state.hasEnded = true
            defer { state.waiting = [:] }
            return state.waiting.values.map { $0 }
        }
        for continuation in waiting { continuation.resume(returning: .failure(Self.ended)) }
        onEnd()
    }
}
