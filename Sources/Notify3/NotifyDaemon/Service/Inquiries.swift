/// Calls and departures in the order of the bus. If notifyd does not know yet who called, the call holds up all later arrivals of all
/// connections: otherwise a name that one process hands on to a new one would have no registration in between, and would lose its
/// state. Pure.
struct ArrivalOrder<Call> {
    enum Arrival {
        case call(Call, of: String)
        case departure(of: String)
    }

    private var arrivals: [Arrival] = []
    private var counts: [String: Int] = [:]
    private var unidentified: Set<String> = []

    /// How many calls of this connection wait.
    func count(of connection: String) -> Int { counts[connection] ?? 0 }

    /// A call arrived. ``next()`` follows.
    mutating func called(_ call: Call, by connection: String) {
        arrivals.append(.call(call, of: connection))
        counts[connection, default: 0] += 1
    }

    /// Whether the bus is being asked who the connection is.
    func isUnidentified(_ connection: String) -> Bool { unidentified.contains(connection) }

    /// The bus is being asked who a connection is. From here on its calls wait.
    mutating func identifying(_ connection: String) { unidentified.insert(connection) }

    /// The bus has said who it is. ``next()`` follows.
    mutating func identified(_ connection: String) { unidentified.remove(connection) }

    /// A connection is gone. If it is not identified yet, its calls are dropped. ``next()`` follows.
    mutating func departed(_ connection: String) {
        if isUnidentified(connection) {
            _ = withdraw(connection)
        } else {
            arrivals.append(.departure(of: connection))
        }
    }

    /// Takes back the calls of a connection that cannot be identified. ``next()`` follows.
    mutating func withdraw(_ connection: String) -> [Call] {
        unidentified.remove(connection)
        counts[connection] = nil
        var withdrawn: [Call] = []
        arrivals.removeAll { arrival in
            guard case .call(let call, of: connection) = arrival else { return false }
            withdrawn.append(call)
            return true
        }
        return withdrawn
    }

    /// Takes the arrivals whose turn has come, in order.
    mutating func next() -> [Arrival] {
        let end =
            arrivals.firstIndex { arrival in
                if case .call(_, of: let connection) = arrival { isUnidentified(connection) } else { false }
            } ?? arrivals.endIndex
        let ready = Array(arrivals[..<end])
        arrivals.removeSubrange(..<end)
        for case .call(_, of: let connection) in ready {
            counts[connection] = count(of: connection) > 1 ? count(of: connection) - 1 : nil
        }
        return ready
    }
}

/// Rounds in which notifyd asks all processes to report. There is one round at a time for all callers. A caller that comes during a round waits
/// for the next one, because answers of this round may have been sent before its call. Pure.
struct Inquiries<Waiter> {
    private struct Round {
        let number: UInt64
        var awaited: Set<String>
        let waiters: [Waiter]
    }

    private var round: Round?
    private var next: [Waiter] = []
    private var lastNumber: UInt64

    /// - Parameter first: the number of the first round; larger than any that a notifyd before this one used.
    init(first: UInt64) { lastNumber = first }

    /// A caller wants fresh reports. Returns whether a round has to begin.
    mutating func want(_ waiter: Waiter) -> Bool {
        next.append(waiter)
        return round == nil
    }

    /// Takes the number of the next round.
    mutating func takeNumber() -> UInt64 {
        lastNumber += 1
        return lastNumber
    }

    /// A round began; these connections should answer.
    mutating func began(_ number: UInt64, awaiting awaited: Set<String>) {
        round = Round(number: number, awaited: awaited, waiters: next)
        next = []
    }

    /// A connection has answered, or is gone.
    mutating func settle(_ connection: String, inquiry: UInt64) {
        if round?.number == inquiry { round?.awaited.remove(connection) }
    }

    mutating func gone(_ connection: String) { round?.awaited.remove(connection) }

    /// The callers whose round is over, because all processes have answered or the time is over; and whether another round has to begin.
    mutating func finish(expired: UInt64? = nil) -> (waiters: [Waiter], again: Bool)? {
        guard let over = round, over.awaited.isEmpty || over.number == expired else { return nil }
        round = nil
        return (over.waiters, !next.isEmpty)
    }
}
