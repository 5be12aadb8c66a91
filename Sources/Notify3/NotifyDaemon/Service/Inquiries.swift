/// Rounds of asking all processes to report. One at a time, however many want the answers: who comes during a round waits for the
/// next one, because an answer may have been sent before. Pure.
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

    /// Somebody wants fresh reports; whether a round is to begin.
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

    /// Those whose round is over, because all have answered or time is; and whether another one is to begin.
    mutating func finish(expired: UInt64? = nil) -> (waiters: [Waiter], again: Bool)? {
        guard let over = round, over.awaited.isEmpty || over.number == expired else { return nil }
        round = nil
        return (over.waiters, !next.isEmpty)
    }
}
