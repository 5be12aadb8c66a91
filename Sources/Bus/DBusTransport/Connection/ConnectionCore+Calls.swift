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
    let waiter: Waiter

    init(
        _ message: consuming DBusMessage,
        deadline: ContinuousClock.Instant?,
        outlivesDeadline: Bool = false,
        waiter: @escaping Waiter
    ) {
        self.message = message
        self.deadline = deadline
        self.outlivesDeadline = outlivesDeadline
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
        do throws(DBusError) {
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
        } catch {
            call.waiter(.failure(error))
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
        var retained: (handle: Int, MatchRuleTable.Retention, batch: RuleBatch?)?
        if !isForeign {
            // The common case, under the lock once: the bus is there, and somebody reads.
            retained = state.withLock { state in
                guard state.isReading, case .connected = state.phase else { return nil }
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
            retained = state.withLock { state in
                switch state.phase {
                case .closed: return nil
                case .lost: return state.retain(rule, fallback: fallback, isConnected: false, waiter: waiter)
                case .connected: return state.retain(rule, fallback: fallback, isConnected: true, waiter: waiter)
                }
            }
        }
        guard let (handle, retention, batch) = retained else {
            waiter(.closed("add the match rule \(rule)"))
            return nil
        }
        if let batch { send(batch) }
        switch retention {
        case .inForce: waiter(nil)
        case .failed(let error): waiter(outage ?? error)
        case .pending: break
        }
        return handle
    }

    func release(_ handle: Int) {
        guard !isForeign else { return }
        if let batch = state.withLock({ $0.enqueue($0.rules.release(handle)) }) { send(batch) }
    }

    /// What one thread sends in one go.
    struct RuleBatch {
        let actions: [MatchRuleTable.Action]
        /// How long the bus may take for each.
        let timeout: Duration
    }

    /// Sends what the table decided, in the order of deciding, whichever thread decided it: a place that a rule gave up must go to the
    /// rule that it was given up for. One thread at a time sends for all, so this one goes on with what the others have left meanwhile.
    func send(_ first: RuleBatch) {
        var batch: RuleBatch? = first
        while let current = batch {
            for action in current.actions { send(action, timeout: current.timeout) }
            batch = state.withLock { $0.takeRuleBatch() }
        }
    }

    private static let addMatch = Result { () throws(DBusError) in
        MessageTemplate(try .busCall("AddMatch"))
    }
    private static let removeMatch = Result { () throws(DBusError) in
        MessageTemplate(try .busCall("RemoveMatch", expectsReply: false))
    }

    private func send(_ action: MatchRuleTable.Action, timeout: Duration) {
        do throws(DBusError) {
            switch action {
            case .add(let rule, let request):
                let call = PendingCall(
                    try Self.addMatch.get().filled(with: rule.description),
                    deadline: .now + timeout,
                    outlivesDeadline: true
                ) { self.answered(rule, request, error: $0.failure) }
                startCall(call, serial: takeSerial())
            case .remove(let rule):
                // A lost bus has forgotten the rule by itself, so a failure changes nothing.
                // Queued, because others wait for this thread to send their requests, and a stopped bus would hold it up.
                try? queue(try Self.removeMatch.get().filled(with: rule.description))
            }
        } catch {
            if case .add(let rule, let request) = action { answered(rule, request, error: error) }
        }
    }

    private func answered(_ rule: MatchRule, _ request: MatchRuleTable.Request, error: DBusError?) {
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
        let (answer, batch) = state.withLock { state in
            let answer = state.rules.answered(rule, request, error: error)
            if let error = answer.error { state.restorationFailures?.append(error) }
            return (answer, state.enqueue(answer.actions))
        }
        for waiter in answer.waiters { waiter(answer.error) }
        if let batch { send(batch) }
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
    ) -> (handle: Int, MatchRuleTable.Retention, batch: ConnectionCore.RuleBatch?) {
        let (handle, retention, actions) =
            rules.retain(rule, fallback: fallback, isConnected: isConnected, waiter: waiter)
        return (handle, retention, enqueue(actions))
    }

    /// Takes up what the table decided.
    ///
    /// - Returns: what the caller is to send; `nil` where there is nothing, or another thread is sending and takes this too.
    mutating func enqueue(_ actions: [MatchRuleTable.Action]) -> ConnectionCore.RuleBatch? {
        guard !actions.isEmpty else { return nil }
        guard !isSendingRuleActions else {
            ruleActions += actions
            return nil
        }
        isSendingRuleActions = true
        return ConnectionCore.RuleBatch(actions: actions, timeout: ruleTimeout)
    }

    /// What the sending thread sends next; `nil` where nothing is left, and it sends no more.
    mutating func takeRuleBatch() -> ConnectionCore.RuleBatch? {
        isSendingRuleActions = !ruleActions.isEmpty
        guard isSendingRuleActions else { return nil }
        defer { ruleActions = [] }
        return ConnectionCore.RuleBatch(actions: ruleActions, timeout: ruleTimeout)
    }
}
