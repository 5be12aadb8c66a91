/// The calls that wait for an answer. Pure: it says who is to be told, the connection tells them.
struct PendingCalls<Waiter> {
    struct Call {
        let id: UInt64
        /// Whom the call went to: a unique name, or a well-known one.
        let destination: String
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

    /// The call that the reply with this serial answers; `nil` for one that timed out, was cancelled, or never was, and for a
    /// reply of somebody else than was asked, as far as the names tell: a well-known name's owner answers under its own.
    mutating func answered(serial: UInt32, sender: String) -> Call? {
        guard let call = calls[serial] else { return nil }
        let isUnique = call.destination.hasPrefix(":") || call.destination == BusDaemon.name
        return isUnique && sender != call.destination ? nil : answered(serial: serial)
    }

    private mutating func answered(serial: UInt32) -> Call? {
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
