import Basics
import Dispatch
import Glibc
import Synchronization

/// A pending call. Its message supplies the texts of errors, so that a call that succeeds makes no text.
final class PendingCall: Sendable {
    typealias Waiter = @Sendable (Result<[DBusValue], DBusError>) -> Void

    let message: DBusMessage
    let deadline: ContinuousClock.Instant?
    /// Whether the waiter is called at the deadline, and again with a later response.
    let outlivesDeadline: Bool
    /// The largest body of a response that is read. An error may carry a text even if this is smaller.
    let largestAnswer: Int
    let waiter: Waiter

    /// Twice the estimated limit for sent messages: the estimate leaves out most of the padding.
    static let largestAnswer = 2 * DBusValueLimits.bodyBytes
    /// The largest body of an error that is read.
    static let largestError = 64 << 10

    init(
        _ message: consuming DBusMessage,
        deadline: ContinuousClock.Instant? = .now + .seconds(25),
        outlivesDeadline: Bool = false,
        largestAnswer: Int = PendingCall.largestAnswer,
        waiter: @escaping Waiter
    ) {
        self.message = message
        self.deadline = deadline
        self.outlivesDeadline = outlivesDeadline
        self.largestAnswer = largestAnswer
        self.waiter = waiter
    }

    var attempted: String { ConnectionCore.attempt(message) }
}

/// The calls that wait for a response, by serial. Pure: it returns the calls, and the connection calls their waiters.
struct PendingCalls {
    private struct Entry {
        let call: PendingCall
        /// `nil` also once the deadline has passed and the response still counts.
        var deadline: ContinuousClock.Instant?
    }

    private var entries: [UInt32: Entry] = [:]

    var count: Int { entries.count }

    /// The earliest deadline. Computed when an alarm goes off, not for each call.
    var nextDeadline: ContinuousClock.Instant? { entries.values.lazy.compactMap(\.deadline).min() }

    /// Numbers the call's message, and inserts the call.
    mutating func insert(_ call: PendingCall, serial: UInt32) {
        call.message.setSerial(serial)
        entries[serial] = Entry(call: call, deadline: call.deadline)
    }

    enum AnswerVerdict {
        case awaited, notAwaited
        /// The call ends without the response.
        case tooLarge(PendingCall)
    }

    /// Judges a response by its header, before its body arrives. It must come from the called peer; the owner of a
    /// well-known name responds under its unique name, and cannot be checked.
    mutating func judge(_ answer: borrowing MessageHeader) -> AnswerVerdict {
        let serial = answer.replySerial
        guard let call = entries[serial]?.call, call.message.mayBeAnswered(by: answer.sender) else {
            return .notAwaited
        }
        let limit = answer.kind == .error ? PendingCall.largestError : call.largestAnswer
        guard answer.isTooLong || answer.bodyBytes > limit else { return .awaited }
        entries[serial] = nil
        return .tooLarge(call)
    }

    mutating func remove(_ serial: UInt32) -> PendingCall? { entries.removeValue(forKey: serial)?.call }

    /// Removes the call of this message, which has no serial before it is inserted.
    mutating func remove(_ message: borrowing DBusMessage) -> PendingCall? { remove(message.serial) }

    mutating func expired(at now: ContinuousClock.Instant) -> [PendingCall] {
        var expired: [PendingCall] = []
        for (serial, entry) in entries where entry.deadline.map({ $0 <= now }) ?? false {
            expired.append(entry.call)
            if entry.call.outlivesDeadline { entries[serial]?.deadline = nil } else { entries[serial] = nil }
        }
        return expired
    }

    mutating func removeAll() -> [PendingCall] {
        defer { self = PendingCalls() }
        return entries.values.map(\.call)
    }
}

// MARK: - Calling

extension ConnectionCore {
    /// Sends a method call. The waiter is called once: on the reading thread with the response, or on this thread if
    /// the call could not be sent.
    func startCall(_ call: PendingCall) {
        do throws(DBusError) { try send(call) } catch { call.waiter(.failure(error)) }
    }

    /// Sends a method call. Does not call the waiter if it throws.
    private func send(_ call: PendingCall) throws(DBusError) {
        try checkProcess(call.attempted)
        if try sendIfReading(call) { return }
        _ = try socket(call.attempted, by: call.deadline)
        try startReading()
        guard try sendIfReading(call) else { throw .disconnected(call.attempted) }
    }

    /// Sends the call if the bus is connected and there is a reading thread.
    private func sendIfReading(_ call: PendingCall) throws(DBusError) -> Bool {
        try numbered { serial throws(DBusError) in
            // Inserted before it is sent, so that the response finds it.
            guard let (socket, wakes) = insert(call, serial: serial) else { return false }
            do throws(DBusError) {
                let standing = try socket.send(call.message, serial: serial, attempted: call.attempted)
                if wakes || needsReader(standing) { event.signal() }
            } catch {
                // If the call is gone, another thread has told the waiter.
                guard state.withLock({ $0.calls.remove(serial) }) != nil else { return true }
                throw error
            }
            return true
        }
    }

    /// Inserts the call under one lock if the bus is connected and read; otherwise `nil`. Tells whether to wake the
    /// reader.
    private func insert(_ call: PendingCall, serial: UInt32) -> (BusSocket, wakes: Bool)? {
        state.withLock { state in
            guard state.isReading, case .connected(let socket) = state.phase else { return nil }
            state.calls.insert(call, serial: serial)
            return (socket, state.advanceAlarm(to: call.deadline))
        }
    }

    /// Ends the call of this message, if it is pending, without calling its waiter.
    @discardableResult
    func forgetCall(_ message: borrowing DBusMessage) -> PendingCall? {
        state.withLock { $0.calls.remove(message) }
    }

    func cancelCall(_ message: borrowing DBusMessage) {
        guard !isForeign, let call = forgetCall(message) else { return }
        call.waiter(.failure(DBusError(.cancelled, message: "the task was cancelled", attempted: call.attempted)))
    }

    func checkWaiting(_ attempted: @autoclosure () -> String) throws(DBusError) {
        try checkProcess(attempted())
        if isOnReadingThread { throw .onReadingThread(attempted()) }
    }

    /// Waits on this thread, which must not be the reading thread, until the deadline at most: the reading thread,
    /// which reports timeouts, may be inside a handler that waits for this very thread. `late` returns the value for
    /// such an end.
    func wait<Value: Sendable>(
        until deadline: ContinuousClock.Instant,
        late: () -> Value,
        start: (@escaping @Sendable (Value) -> Void) -> Void
    ) -> Value {
        let box = Locked<Value?>(nil)
        let done = DispatchSemaphore(value: 0)
        start { value in
            // Called again if a response comes after its deadline; the first call counts.
            let isFirst = box.withLock { box in
                guard box == nil else { return false }
                box = value
                return true
            }
            if isFirst { done.signal() }
        }
        // A call that could not be sent already has its value, and does not wait.
        if let value = box.withLock({ $0 }) { return value }
        // Slightly later than the reading thread reports a timeout: its result counts if it comes.
        let limit = deadline + .milliseconds(50)
        while done.wait(timeout: .now() + .milliseconds(Int(milliseconds(until: limit)))) == .timedOut, .now < limit {}
        return box.withLock { $0 } ?? late()
    }

    // MARK: Match rules

    /// Adds a user of the rule until ``release(_:)``, even if the bus refuses it now. The waiter is called once, here
    /// or on the reading thread. Without a reading thread this connects, until `limit` at most. Returns the rule's
    /// handle; `nil` in a forked child and after the end of the connection.
    func retain(
        _ rule: MatchRule,
        fallback: MatchRule?,
        by limit: ContinuousClock.Instant? = nil,
        waiter: @escaping MatchRuleTable.Waiter
    ) -> Int? {
        var outage: DBusError?
        do throws(DBusError) {
            // Connects if there is no reading thread that does.
            do throws(DBusError) { _ = try socket("add the match rule \(rule)", by: limit) } catch { outage = error }
            if let outage, outage.code == .closed { throw outage }
            try startReading()
        } catch {
            waiter(error)
            return nil
        }
        let retained = decide { state -> ((handle: Int, MatchRuleTable.Retention)?, [MatchRuleTable.Action]) in
            let isConnected: Bool
            switch state.phase {
            case .closed: return (nil, [])
            case .lost: isConnected = false
            case .connected: isConnected = true
            }
            let (handle, retention, actions) =
                state.rules.retain(rule, fallback: fallback, isConnected: isConnected, waiter: waiter)
            return ((handle, retention), actions)
        }
        guard let (handle, retention) = retained else {
            waiter(.closed("add the match rule \(rule)"))
            return nil
        }
        switch retention {
        case .inForce: waiter(nil)
        case .failed(let error): waiter(outage ?? error)
        case .pending: break
        }
        return handle
    }

    func release(_ handle: Int) {
        guard !isForeign else { return }
        decide { ((), $0.rules.release(handle)) }
    }

    /// Runs a decision of the rule table, and sends its actions before any other thread's decision. Then calls the
    /// waiters of requests that could not be sent.
    func decide<Outcome: Sendable>(_ decide: @Sendable (inout State) -> (Outcome, [MatchRuleTable.Action])) -> Outcome {
        let (outcome, failures) = ruleOrder.withLock { _ in
            let (outcome, actions) = state.withLock { decide(&$0) }
            return (outcome, send(actions))
        }
        for failure in failures { failure.tell() }
        return outcome
    }

    /// - Returns: the outcomes of the actions that could not be sent.
    private func send(_ actions: [MatchRuleTable.Action]) -> [MatchRuleTable.Answer] {
        var (left, failures) = (actions[...], [MatchRuleTable.Answer]())
        while let action = left.popFirst() {
            do throws(DBusError) { try send(action) } catch {
                // A lost bus has already forgotten a rule that is to be removed.
                guard case .add(let rule, let request) = action else { continue }
                let failure = state.withLock { $0.answered(rule, request, error: error) }
                failures.append(failure)
                left += failure.actions
            }
        }
        return failures
    }

    private static let addMatch = Result { () throws(DBusError) in MessageTemplate(try .busCall("AddMatch")) }
    private static let removeMatch = Result { () throws(DBusError) in
        MessageTemplate(try .busCall("RemoveMatch", expectsReply: false))
    }

    private func send(_ action: MatchRuleTable.Action) throws(DBusError) {
        switch action {
        case .add(let rule, let request):
            let call = PendingCall(
                try Self.addMatch.get().filled(with: rule.description),
                deadline: .now + state.withLock { $0.ruleTimeout },
                outlivesDeadline: true
            ) { result in
                self.decide { state in
                    let answer = state.answered(rule, request, error: result.failure)
                    return (answer, answer.actions)
                }.tell()
            }
            try send(call)
        case .remove(let rule):
            // Queued: other threads wait for this one to send their requests, and a stopped bus would block it.
            try queue(try Self.removeMatch.get().filled(with: rule.description))
        }
    }

    // MARK: Names

    /// Requests a name from the bus. The waiter is called once, on the reading thread, or here if the request cannot be
    /// sent; with `nil` if the name is owned, queued for, or was released since.
    func send(_ request: OwnedNames.Request, waiter: @escaping @Sendable (DBusError?) -> Void) {
        let attempted = "own the bus name \(request.name)"
        do throws(DBusError) {
            let message = try DBusMessage.busCall(
                "RequestName",
                [.string(request.name), .uint32(request.options.rawValue)]
            )
            let call = PendingCall(message) { [self] result in
                switch result {
                case .failure(let error):
                    end(request, isOwned: false)
                    waiter(error)
                // 1 owner, 2 queued, 3 exists, 4 owned already (D-Bus specification, RequestName).
                case .success(let reply) where [1, 2, 4].contains(reply.first?.unsignedValue):
                    // Noted on the reading thread: if the bus is lost right after this, the name is restored.
                    end(request, isOwned: true)
                    waiter(nil)
                case .success:
                    end(request, isOwned: false)
                    let message = "another connection owns it"
                    let remedy = "end the program that owns it, or use another bus"
                    waiter(DBusError(.nameTaken, message: message, attempted: attempted, remedy: remedy))
                }
            }
            startCall(call)
        } catch {
            end(request, isOwned: false)
            waiter(error)
        }
    }

    private func end(_ request: OwnedNames.Request, isOwned: Bool) {
        guard state.withLock({ $0.names.answered(request, isOwned: isOwned) }) else { return }
        // The bus may have processed the release before the request. If this fails, the connection and the name are
        // gone.
        guard let release = try? DBusMessage.busCall("ReleaseName", [.string(request.name)]) else { return }
        let call = PendingCall(release) { [self] _ in
            // Another task may have requested the name since, before the bus processed this release.
            guard let again = state.withLock({ $0.names.requestAgain(request.name) }) else { return }
            send(again) { _ in }
        }
        startCall(call)
    }
}

extension ConnectionCore.State {
    fileprivate mutating func answered(
        _ rule: MatchRule,
        _ request: MatchRuleTable.Request,
        error: DBusError?
    ) -> MatchRuleTable.Answer {
        // Made only for a failure, not for each request: the text tells which observers get nothing.
        let error = error.map { $0.of("add the match rule \(rule)") }
        let answer = rules.answered(rule, request, error: error)
        if let error = answer.error { restorationFailures?.append(error) }
        return answer
    }
}
