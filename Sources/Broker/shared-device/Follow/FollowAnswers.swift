import Basics
import CommandParts
import DBus
import Dispatch
import FoundationEssentials
import Glibc
import SharedDevice
import Synchronization

/// A response on standard input: a step of a cleanup is done, or has failed.
struct FollowAnswer: Equatable {
    let number: Int
    /// The result for people, or the reason for the failure.
    let words: String?
    let isDone: Bool

    struct Flaw: Error, CustomStringConvertible {
        let description: String
    }

    private struct Fields: Decodable {
        let done: Int?
        let failed: Int?
        let detail: String?
        let reason: String?
    }

    /// Reads a line: `{"done": 7, "detail": "3 files"}` or `{"failed": 7, "reason": "…"}`.
    init(_ line: [UInt8]) throws(Flaw) {
        let fields: Fields
        do {
            fields = try JSONDecoder().decode(Fields.self, from: Data(line))
        } catch {
            throw Flaw(
                description: "it is no JSON object with “done” or “failed” and the number of the cleanup"
            )
        }
        switch (fields.done, fields.failed) {
        case (let number?, nil): (self.number, isDone, words) = (number, true, fields.detail)
        case (nil, let number?): (self.number, isDone, words) = (number, false, fields.reason)
        default: throw Flaw(description: "it needs one of “done” and “failed”")
        }
    }
}

/// Splits input into lines. A line that is too long is skipped but counted, so that the next line is read. Pure.
struct BoundedLines {
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

/// Asks the reader of the output to delete data, and waits for its responses on standard input.
final class FollowAnswers: Sendable {
    struct Failed: Error, CustomStringConvertible {
        let description: String
    }

    private typealias Waiting = CheckedContinuation<Result<String?, Failed>, Never>

    private struct State {
        var next = 1
        var waiting: [Int: Waiting] = [:]
        var hasEnded = false
    }

    private static let ended = Failed(
        description: "standard input has ended, so the reader cannot report that the data is gone"
    )

    private let state = Locked(State())
    private let output: FollowOutput
    private let timeout: Duration
    private let onEnd: @Sendable () -> Void

    /// - Parameters:
    ///   - timeout: How long a response may take.
    ///   - onEnd: Called on the reading thread when standard input ends.
    init(output: FollowOutput, timeout: Duration, onEnd: @escaping @Sendable () -> Void) {
        (self.output, self.timeout, self.onEnd) = (output, timeout, onEnd)
    }

    /// Asks for a deletion, and waits for the response.
    ///
    /// - Returns: The response's detail.
    /// - Throws: ``Failed`` if the response says so, if none arrives in time, or if standard input ends.
    func ask(_ step: String, _ accounts: [Account]) async throws(Failed) -> String? {
        let number = state.withLock { state in
            defer { state.next += 1 }
            return state.next
        }
        let late = Failed(description: "no response to number \(number) within \(timeout)")
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
                await output.write(FollowLine(cleanup: number, step: step, accounts: accounts))
                if let failure = output.failure { settle(number, .failure(Failed(description: failure.description))) }
            }
        }.get()
    }

    /// Reads responses on its own thread until the descriptor ends. An invalid line is reported on standard error and
    /// otherwise ignored.
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

    /// - Returns: The problem with the line; `nil` if it was an expected response.
    private func take(_ line: [UInt8]?) -> String? {
        guard let line else { return "it has more than \(BoundedLines.longest) bytes, and is left out" }
        do throws(FollowAnswer.Flaw) {
            let answer = try FollowAnswer(line)
            let result: Result<String?, Failed> =
                answer.isDone ? .success(answer.words) : .failure(Failed(description: answer.words ?? "it failed"))
            return settle(answer.number, result) ? nil : "nothing waits for a response to number \(answer.number)"
        } catch {
            return "\(error)"
        }
    }

    @discardableResult
    private func settle(_ number: Int, _ result: Result<String?, Failed>) -> Bool {
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
