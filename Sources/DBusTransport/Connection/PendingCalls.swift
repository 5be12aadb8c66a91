/// The calls that wait for an answer. Pure: it says who is to be told, the connection tells them.
struct PendingCalls<Waiter> {
    struct Call {
        let id: UInt64
        let attempted: String
        let deadline: ContinuousClock.Instant?
        let waiter: Waiter
    }

    private var calls: [UInt32: Call] = [:]
    private var serials: [UInt64: UInt32] = [:]

    /// When the next call runs out of time.
    var nextDeadline: ContinuousClock.Instant? {
        // Few calls wait at a time; AddMatch and its like, of which there may be thousands, have no deadline.
        timed == 0 ? nil : calls.values.lazy.compactMap(\.deadline).min()
    }

    private var timed = 0

    mutating func insert(_ call: Call, serial: UInt32) {
        calls[serial] = call
        serials[call.id] = serial
        if call.deadline != nil { timed += 1 }
    }

    /// The call that the reply with this serial answers; `nil` for one that timed out, was cancelled, or never was.
    mutating func answered(serial: UInt32) -> Call? {
        guard let call = calls.removeValue(forKey: serial) else { return nil }
        serials[call.id] = nil
        if call.deadline != nil { timed -= 1 }
        return call
    }

    mutating func cancelled(id: UInt64) -> Call? {
        guard let serial = serials[id] else { return nil }
        return answered(serial: serial)
    }

    mutating func expired(at now: ContinuousClock.Instant) -> [Call] {
        guard timed > 0 else { return [] }
        let late = calls.filter { $0.value.deadline.map { $0 <= now } ?? false }.keys
        return late.compactMap { answered(serial: $0) }
    }

    mutating func removeAll() -> [Call] {
        defer { self = PendingCalls() }
        return Array(calls.values)
    }
}
