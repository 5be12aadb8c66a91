import DBus

// The state of calling connections and of their calls in flight. The rest of ``Callers`` asks the bus and takes the
// lock.
extension Callers {
    /// A call that arrived before its user was known.
    struct FirstCall {
        let number: UInt64
        let member: String
        let bytes: Int
        /// Whether the call is charged to its user already.
        var isCharged = false
    }

    /// The amount that a call in flight is charged with.
    struct Charge {
        let user: UInt32
        let bytes: Int
        let isQuestion: Bool
    }

    struct State {
        var known: [String: Caller] = [:]
        var asking: [String: [(body: Continuation, call: FirstCall?)]] = [:]
        /// The users of connections whose processes are being inspected, according to the bus.
        var users: [String: UInt32] = [:]
        /// By connection, the admitted call that has not reached ``identify(_:_:)`` yet.
        var admitted: [String: FirstCall] = [:]
        var calls: UInt64 = 0
        /// The charges of calls in flight, by number. Only calls of known users have one.
        var charges: [UInt64: Charge] = [:]
        /// The connections given to ``follow(_:)`` that have not ended.
        var followed: Set<String> = []
        /// The calls in flight of each user, and the queue of calls from known callers.
        var desk = ServiceFrontDesk<WaitingCall>(lap: 1)
        /// The part of each user's calls in flight that asks about the device as a whole.
        var questions = Quotas<UInt32>()
        /// The number of queued calls of each connection, by its global name.
        var waiting: [String: Int] = [:]
        /// Ended connections that still have queued calls.
        var leaving: Set<String> = []
    }

    struct WaitingCall {
        let sender: String
        let caller: Caller
        let body: Continuation
    }
}

extension Callers.State {
    mutating func enqueue(_ sender: String, _ caller: Caller, _ body: @escaping Callers.Continuation) {
        desk.queue.append(
            Callers.WaitingCall(sender: sender, caller: caller, body: body),
            of: caller.user,
            pace: Callers.pace(of: caller.user)
        )
        waiting[caller.connection, default: 0] += 1
    }

    /// A queued call had its turn. Returns whether its connection has ended and this was its last call.
    mutating func ended(_ call: Callers.WaitingCall) -> Bool {
        let connection = call.caller.connection
        waiting[connection, default: 1] -= 1
        guard waiting[connection] == 0 else { return false }
        waiting[connection] = nil
        return leaving.remove(connection) != nil
    }

    /// Whether the connection's quota is used up, even for a small call.
    func isFull(_ sender: String) -> Bool {
        // The exported object also limits each connection, but takes several times as long to refuse.
        if let caller = known[sender], waiting[caller.connection] ?? 0 >= Callers.callsOfConnection { return true }
        if let user = known[sender]?.user ?? users[sender],
            !desk.users[user].hasRoom(for: 1, within: Callers.limitOfUser)
        {
            return true
        }
        return known[sender] == nil && asking[sender]?.count ?? 0 >= Callers.firstCalls.calls
    }

    /// Charges a call to a user until ``end(_:of:)``.
    ///
    /// - Returns: Whether the quota allowed it.
    mutating func charge(_ number: UInt64, _ user: UInt32, _ member: String, bytes: Int) -> Bool {
        let isQuestion =
            Callers.questions.contains(member)
            || !Callers.isAdministrator(user) && Callers.enforcement.contains(member)
        guard !isQuestion || questions[user].calls < Callers.questionsOfUser,
            desk.users.begin(bytes, of: user, within: Callers.limitOfUser)
        else { return false }
        if isQuestion { questions.begin(bytes, of: user) }
        charges[number] = Callers.Charge(user: user, bytes: bytes, isQuestion: isQuestion)
        return true
    }

    /// The bus has named the connection's user: charges its calls to that user. Returns the calls beyond the quota.
    mutating func vouch(_ sender: String, _ user: UInt32) -> [Callers.Continuation] {
        guard let waiting = asking[sender] else { return [] }
        users[sender] = user
        var refused: [Callers.Continuation] = []
        var kept: [(body: Callers.Continuation, call: Callers.FirstCall?)] = []
        for (body, call) in waiting {
            var call = call
            if let first = call, !first.isCharged {
                guard charge(first.number, user, first.member, bytes: first.bytes) else {
                    refused.append(body)
                    continue
                }
                call?.isCharged = true
            }
            kept.append((body: body, call: call))
        }
        asking[sender] = kept
        return refused
    }

    /// A call was answered, or its caller no longer waits.
    mutating func end(_ number: UInt64, of sender: String) {
        if admitted[sender]?.number == number { admitted[sender] = nil }
        guard let charge = charges.removeValue(forKey: number) else { return }
        desk.users.end(charge.bytes, of: charge.user)
        if charge.isQuestion { questions.end(charge.bytes, of: charge.user) }
    }
}
