import DBusTransport

// What is known of the connections that call, and what they have under way. The rest of ``Callers`` asks the bus, and takes the lock.
extension Callers {
    /// A call that came before its user was known.
    struct FirstCall {
        let number: UInt64
        let member: String
        let bytes: Int
        /// Whether its user answers for it already.
        var isCharged = false
    }

    /// What a call counts for.
    struct Charge {
        let user: UInt32
        let bytes: Int
        let isQuestion: Bool
    }

    struct State {
        var known: [String: Caller] = [:]
        var asking: [String: [(body: Continuation, call: FirstCall?)]] = [:]
        /// Users of connections whose processes are looked at, by the bus's word.
        var users: [String: UInt32] = [:]
        /// Of each connection the call that was admitted and has not come to ``identify(_:_:)`` yet.
        var admitted: [String: FirstCall] = [:]
        var calls: UInt64 = 0
        /// Calls under way, by their numbers, whose users are known.
        var charges: [UInt64: Charge] = [:]
        /// What ``follow(_:)`` was given and has not ended.
        var followed: Set<String> = []
        /// What each user has under way, and calls whose callers are known until their turn.
        var desk = ServiceFrontDesk<WaitingCall>(lap: 1)
        /// Of what each user has under way, the questions about the device as a whole.
        var questions = Quotas<UInt32>()
        /// How many of these each connection has, by the name that it has on any bus.
        var waiting: [String: Int] = [:]
        /// Connections that are gone and have calls there.
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

    /// A call has had its turn. Returns whether its connection is gone, and this was the last of it.
    mutating func ended(_ call: Callers.WaitingCall) -> Bool {
        let connection = call.caller.connection
        waiting[connection, default: 1] -= 1
        guard waiting[connection] == 0 else { return false }
        waiting[connection] = nil
        return leaving.remove(connection) != nil
    }

    /// Whether not even a small call of the connection would be admitted.
    func isFull(_ sender: String) -> Bool {
        // The object refuses more of one connection, and takes several times as long to say so.
        if let caller = known[sender], waiting[caller.connection] ?? 0 >= Callers.callsOfConnection { return true }
        if let user = known[sender]?.user ?? users[sender],
            !desk.users[user].hasRoom(for: 1, within: Callers.limitOfUser)
        {
            return true
        }
        return known[sender] == nil && asking[sender]?.count ?? 0 >= Callers.firstCalls.calls
    }

    /// Has a user answer for a call until ``end(_:of:)``.
    ///
    /// - Returns: whether there was room.
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

    /// The bus has said whose connection it is: the user answers for its calls from now on. Returns those for which there is no room.
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

    /// A call was answered, or nobody waits for its answer any more.
    mutating func end(_ number: UInt64, of sender: String) {
        if admitted[sender]?.number == number { admitted[sender] = nil }
        guard let charge = charges.removeValue(forKey: number) else { return }
        desk.users.end(charge.bytes, of: charge.user)
        if charge.isQuestion { questions.end(charge.bytes, of: charge.user) }
    }
}
