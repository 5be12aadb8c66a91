import Dispatch
import Glibc
import Synchronization

/// A call under way. Its message tells whom it went to and what was attempted, so that no text is made for a call that succeeds.
final class PendingCall: Sendable {
    typealias Waiter = @Sendable (Result<[DBusValue], DBusError>) -> Void

    let message: DBusMessage
    let deadline: ContinuousClock.Instant?
    /// Whether an answer after the deadline still counts. Then the waiter is called at the deadline, and again with the answer.
    let outlivesDeadline: Bool
    /// The largest body of an answer that is read. An error may have a text in any case.
    let largestAnswer: Int
    let waiter: Waiter

    /// Twice what this library sends by its own estimate, which leaves out most of the padding.
    static let largestAnswer = 2 * DBusValueLimits.bodyBytes
    /// The largest body of an error that is read.
    static let largestError = 64 << 10

    init(
        _ message: consuming DBusMessage,
        deadline: ContinuousClock.Instant?,
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

/// The calls that wait for an answer, by serial. Pure: it says who is to be told, the connection tells them.
struct PendingCalls {
    private var calls: [UInt32: PendingCall] = [:]
    /// Calls whose deadline passed and whose answer still counts.
    private var late: Set<UInt32> = []

    var count: Int { calls.count }

    /// When the next call runs out of time. Asked when an alarm goes off, not for each call.
    var nextDeadline: ContinuousClock.Instant? {
        calls.lazy.filter { !late.contains($0.key) }.compactMap(\.value.deadline).min()
    }

    mutating func insert(_ call: PendingCall, serial: UInt32) { calls[serial] = call }

    /// The call that the reply answers; `nil` if the call has ended, or the reply's sender is not the peer that was called. A well-known name's
    /// owner cannot be checked: it answers under its unique name.
    mutating func answered(by reply: borrowing DBusMessage) -> PendingCall? {
        let serial = reply.replySerial
        guard let call = calls[serial], reply.mayAnswer(call.message) else { return nil }
        return remove(serial)
    }

    enum AnswerVerdict {
        case awaited, notAwaited
        /// The call ends without it.
        case tooLarge(PendingCall)
    }

    /// Judges an answer by its header, before its body arrives.
    mutating func judge(_ answer: borrowing MessageHeader) -> AnswerVerdict {
        let serial = answer.replySerial
        guard let call = calls[serial], call.message.mayBeAnswered(by: answer.sender) else { return .notAwaited }
        let limit = answer.kind == .error ? PendingCall.largestError : call.largestAnswer
        guard answer.isTooLong || answer.bodyBytes > limit else { return .awaited }
        return remove(serial).map { .tooLarge($0) } ?? .notAwaited
    }

    mutating func remove(_ serial: UInt32) -> PendingCall? {
        if !late.isEmpty { late.remove(serial) }
        return calls.removeValue(forKey: serial)
    }

    mutating func expired(at now: ContinuousClock.Instant) -> [PendingCall] {
        let expired = calls.filter { serial, call in
            !late.contains(serial) && call.deadline.map { $0 <= now } ?? false
        }
        for (serial, call) in expired {
            if call.outlivesDeadline { late.insert(serial) } else { calls[serial] = nil }
        }
        return Array(expired.values)
    }

    mutating func removeAll() -> [PendingCall] {
        defer { self = PendingCalls() }
        return Array(calls.values)
    }
}

// MARK: - Calling

extension ConnectionCore {
    /// Sends a method call. The waiter is called once, on the reading thread, with the answer; or right here where nothing could
    /// be sent.
    ///
    /// - Parameter serial: by which ``cancelCall(serial:)`` finds it.
    func startCall(_ call: PendingCall, serial: UInt32) {
        do throws(DBusError) { try send(call, serial: serial) } catch { call.waiter(.failure(error)) }
    }

    /// The same, but where it throws, the waiter is not called.
    private func send(_ call: PendingCall, serial: UInt32) throws(DBusError) {
        // In the table before it is sent, so that the answer finds it there.
        let (socket, wakes): (BusSocket, Bool)
        if let inserted = insert(call, serial: serial) {
            (socket, wakes) = inserted
        } else {
            (socket, wakes) = try connectAndInsert(call, serial: serial)
        }
        do throws(DBusError) {
            let standing = try socket.send(call.message, serial: serial, attempted: call.attempted)
            if wakes || needsReader(standing) { event.signal() }
        } catch {
            // Somebody who told the waiter meanwhile has taken the call out.
            guard state.withLock({ $0.calls.remove(serial) }) != nil else { return }
            throw error
        }
    }

    /// The common case, under the lock once: the bus is there, and somebody reads.
    ///
    /// - Returns: the socket, and whether the reading thread must be woken; `nil` in any other case.
    private func insert(_ call: PendingCall, serial: UInt32) -> (BusSocket, wakes: Bool)? {
        guard !isForeign else { return nil }
        return state.withLock { state in
            guard state.isReading, case .connected(let socket) = state.phase else { return nil }
            state.calls.insert(call, serial: serial)
            return (socket, state.advanceAlarm(to: call.deadline))
        }
    }

    private func connectAndInsert(
        _ call: PendingCall,
        serial: UInt32
    ) throws(DBusError) -> (BusSocket, wakes: Bool) {
        _ = try socket(call.attempted, by: call.deadline)
        try startReading()
        guard let inserted = insert(call, serial: serial) else { throw .disconnected(call.attempted) }
        return inserted
    }

    /// For a caller that waits no more.
    func forgetCall(serial: UInt32) { _ = state.withLock { $0.calls.remove(serial) } }

    func cancelCall(serial: UInt32) {
        guard !isForeign, let call = state.withLock({ $0.calls.remove(serial) }) else { return }
        call.waiter(.failure(DBusError(.cancelled, message: "the task was cancelled", attempted: call.attempted)))
    }

    /// Refuses to wait on the reading thread, and in a forked child.
    func checkWaiting(_ attempted: @autoclosure () -> String) throws(DBusError) {
        try checkProcess(attempted())
        if isOnReadingThread { throw .onReadingThread(attempted()) }
    }

    /// Waits on this thread, which must not be the reading thread.
    ///
    /// - Parameters:
    ///   - deadline: when the wait ends in any case: the reading thread, which tells who is late, may be inside a handler that waits for
    ///     this very thread.
    ///   - late: what is returned then.
    func wait<Value: Sendable>(
        until deadline: ContinuousClock.Instant,
        late: () -> Value,
        start: (@escaping @Sendable (Value) -> Void) -> Void
    ) -> Value {
        let box = Locked<Value?>(nil)
        let done = DispatchSemaphore(value: 0)
        start { value in
            // Called again where an answer comes after its deadline; the first call counts.
            let isFirst = box.withLock { box in
                guard box == nil else { return false }
                box = value
                return true
            }
            if isFirst { done.signal() }
        }
        // What could not be started has its value already, and asks for no lock.
        if let value = box.withLock({ $0 }) { return value }
        // A little later than the reading thread tells who is late: its word counts if it comes.
        let limit = deadline + .milliseconds(50)
        while done.wait(timeout: .now() + .milliseconds(Int(milliseconds(until: limit)))) == .timedOut, .now < limit {}
        return box.withLock { $0 } ?? late()
    }

    /// Calls the bus itself.
    func callBus(
        _ message: consuming DBusMessage,
        timeout: Duration? = .seconds(25),
        waiter: @escaping PendingCall.Waiter
    ) {
        let deadline = timeout.map { ContinuousClock.now + $0 }
        startCall(PendingCall(message, deadline: deadline, waiter: waiter), serial: takeSerial())
    }

    // MARK: Match rules

    /// Adds a user of the rule, which the connection keeps until ``release(_:)``, whatever the bus says of it now. The waiter is told
    /// once, here or on the reading thread. Looks for a bus until `limit`, where nobody did so far.
    ///
    /// - Returns: the rule's handle; `nil` in a forked child and after the end of the connection.
    func retain(
        _ rule: MatchRule,
        fallback: MatchRule?,
        by limit: ContinuousClock.Instant? = nil,
        waiter: @escaping MatchRuleTable.Waiter
    ) -> Int? {
        var outage: DBusError?
        var retained: (handle: Int, MatchRuleTable.Retention)?
        if !isForeign {
            // The common case, under the lock once: the bus is there, and somebody reads.
            retained = decide { state in
                guard state.isReading, case .connected = state.phase else { return (nil, []) }
                return state.retain(rule, fallback: fallback, isConnected: true, waiter: waiter)
            }
        }
        if retained == nil {
            do throws(DBusError) {
                // Connects where nobody did so far.
                do throws(DBusError) { _ = try socket("add the match rule \(rule)", by: limit) } catch {
                    outage = error
                }
                if let outage, outage.code == .closed { throw outage }
                try startReading()
            } catch {
                waiter(error)
                return nil
            }
            retained = decide { state in
                switch state.phase {
                case .closed: (nil, [])
                case .lost: state.retain(rule, fallback: fallback, isConnected: false, waiter: waiter)
                case .connected: state.retain(rule, fallback: fallback, isConnected: true, waiter: waiter)
                }
            }
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

    /// Has the table of rules decide, and sends what it decided, before any other thread does so. Then tells those whose request could not be
    /// sent.
    func decide<Outcome: Sendable>(
        _ decide: @Sendable (inout State) -> (Outcome, [MatchRuleTable.Action])
    ) -> Outcome {
        let (outcome, failures) = ruleOrder.withLock { _ in
            let (outcome, actions) = state.withLock { decide(&$0) }
            return (outcome, send(actions))
        }
        for failure in failures { failure.tell() }
        return outcome
    }

    /// - Returns: what became of those that could not be sent.
    private func send(_ actions: [MatchRuleTable.Action]) -> [MatchRuleTable.Answer] {
        var (left, failures) = (actions[...], [MatchRuleTable.Answer]())
        while let action = left.popFirst() {
            do throws(DBusError) { try send(action) } catch {
                // A lost bus has forgotten the rule that is to be removed.
                guard case .add(let rule, let request) = action else { continue }
                let failure = state.withLock { $0.answered(rule, request, error: error) }
                failures.append(failure)
                left += failure.actions
            }
        }
        return failures
    }

    private static let addMatch = Result { () throws(DBusError) in
        MessageTemplate(try .busCall("AddMatch"))
    }
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
            try send(call, serial: takeSerial())
        case .remove(let rule):
            // Queued, because others wait for this thread to send their requests, and a stopped bus would hold it up.
            try queue(try Self.removeMatch.get().filled(with: rule.description))
        }
    }

    // MARK: Names

    /// Asks the bus for a name.
    ///
    /// - Parameter waiter: called once, on the reading thread, or here where nothing can be sent; `nil` where the name is owned, or given back
    ///   meanwhile.
    func send(_ request: OwnedNames.Request, waiter: @escaping @Sendable (DBusError?) -> Void) {
        let attempted = "own the bus name \(request.name)"
        do throws(DBusError) {
            let message = try DBusMessage.busCall(
                "RequestName",
                [.string(request.name), .uint32(request.options.rawValue)]
            )
            callBus(message) { [self] result in
                switch result {
                case .failure(let error):
                    end(request, isOwned: false)
                    waiter(error)
                // 1 owner, 2 queued, 3 exists, 4 owned already (D-Bus specification, RequestName).
                case .success(let reply) where [1, 2, 4].contains(reply.first?.unsignedValue):
                    // Here, on the reading thread: a loss that comes next must find the name among those to restore.
                    end(request, isOwned: true)
                    waiter(nil)
                case .success:
                    end(request, isOwned: false)
                    let error = DBusError(
                        .nameTaken,
                        message: "another connection owns it",
                        attempted: attempted,
                        remedy: "end the program that owns it, or use another bus"
                    )
                    waiter(error)
                }
            }
        } catch {
            end(request, isOwned: false)
            waiter(error)
        }
    }

    private func end(_ request: OwnedNames.Request, isOwned: Bool) {
        guard state.withLock({ $0.names.answered(request, isOwned: isOwned) }) else { return }
        // The bus may have taken the release before the request. If this fails, the connection is gone, and the name with it.
        guard let release = try? DBusMessage.busCall("ReleaseName", [.string(request.name)]) else { return }
        callBus(release) { [self] _ in
            // Somebody may have asked for the name since, and the bus may have taken that before this release.
            guard let again = state.withLock({ $0.names.requestAgain(request.name) }) else { return }
            send(again) { _ in }
        }
    }
}

extension ConnectionCore.State {
    mutating func retain(
        _ rule: MatchRule,
        fallback: MatchRule?,
        isConnected: Bool,
        waiter: @escaping MatchRuleTable.Waiter
    ) -> ((handle: Int, MatchRuleTable.Retention)?, [MatchRuleTable.Action]) {
        let (handle, retention, actions) =
            rules.retain(rule, fallback: fallback, isConnected: isConnected, waiter: waiter)
        return ((handle, retention), actions)
    }

    fileprivate mutating func answered(
        _ rule: MatchRule,
        _ request: MatchRuleTable.Request,
        error: DBusError?
    ) -> MatchRuleTable.Answer {
        // Only now, and not with each request: the text says which observers are deaf.
        let error = error.map { error in
            DBusError(
                error.code,
                name: error.name,
                message: error.message,
                attempted: "add the match rule \(rule)",
                remedy: error.remedy
            )
        }
        let answer = rules.answered(rule, request, error: error)
        if let error = answer.error { restorationFailures?.append(error) }
        return answer
    }
}
