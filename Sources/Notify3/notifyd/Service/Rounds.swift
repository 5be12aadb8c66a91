/// Rounds in which processes report their registrations for a list. A scope has one round at a time, for all its
/// waiters. A waiter that arrives during a round waits for the next round, because a process may have sent its report
/// for this round earlier. Pure.
struct Rounds<Waiter> {
    private struct Round {
        let scope: DaemonState.Scope
        var awaited: Set<String>
        let waiters: [Waiter]
    }

    private var running: [UInt64: Round] = [:]
    private var waiting: [(scope: DaemonState.Scope, waiter: Waiter)] = []
    private var lastNumber: UInt64 = 0

    /// Adds a waiter. Call ``finish()`` and ``begin(_:)`` after this, and after each method that can end a round.
    mutating func want(_ waiter: Waiter, _ scope: DaemonState.Scope) { waiting.append((scope, waiter)) }

    /// Begins the next rounds. Returns their numbers, from 1 on, and the connections that have to report in each.
    mutating func begin(_ awaited: (DaemonState.Scope) -> Set<String>) -> [(number: UInt64, awaited: Set<String>)] {
        var begun: [(UInt64, Set<String>)] = []
        while let scope = waiting.first(where: { waiting in !running.values.contains { $0.scope == waiting.scope } })?
            .scope
        {
            lastNumber += 1
            let waiters = waiting.filter { $0.scope == scope }.map(\.waiter)
            waiting.removeAll { $0.scope == scope }
            let connections = awaited(scope)
            running[lastNumber] = Round(scope: scope, awaited: connections, waiters: waiters)
            begun.append((lastNumber, connections))
        }
        return begun
    }

    func awaits(_ connection: String, in number: UInt64) -> Bool {
        running[number]?.awaited.contains(connection) == true
    }

    mutating func reported(_ connection: String, in number: UInt64) { running[number]?.awaited.remove(connection) }

    mutating func gone(_ connection: String) {
        for number in running.keys { running[number]?.awaited.remove(connection) }
    }

    /// Ends the wait for the missing reports of a round.
    mutating func expire(_ number: UInt64) { running[number]?.awaited = [] }

    /// Removes the rounds that are over, and returns their waiters in the order of the rounds.
    mutating func finish() -> [Waiter] {
        let over = running.filter(\.value.awaited.isEmpty).sorted { $0.key < $1.key }
        for (number, _) in over { running[number] = nil }
        return over.flatMap(\.value.waiters)
    }
}
