import DeviceConfiguration
import FoundationEssentials
@_spi(Extensions) import SharedDevice

/// Checks the rights of callers to administrative requests, and reads the log for them.
package struct Administration: Sendable {
    /// A right that a caller needs for an administrative request.
    package enum Right: String, Sendable {
        case status
        case signOut = "sign-out"
        case waive

        /// Operators may only sign people out and see the device.
        var isOperators: Bool { self != .waive }
    }

    /// The users behind the operators' names. The members of a group can change without a change of the configuration.
    private var operators: Set<UInt32> = []
    private var foundAt = Duration.zero
    private var isLookedUp = false

    /// How long a lookup of the operators' names stays valid.
    static let operatorsAge = Duration.seconds(60)
    /// How many requests of one user may wait here at a time.
    static let requestsOfUser = 8

    // MARK: Rights

    /// Carries out the request of root, the broker's user, an operator or a user whom polkit permits.
    mutating func permit(
        _ right: Right,
        _ request: Request,
        _ caller: Caller,
        _ facts: Facts
    ) throws(Refusal) -> [Decision] {
        if caller.isAdministrator { return [.administer(request)] }
        if right.isOperators {
            let names = facts.policy.operatorNames
            if !names.isEmpty, facts.now.uptime - foundAt >= Self.operatorsAge {
                try checkRoom(request, facts)
                defer { isLookedUp = true }
                return [.wait(request, for: .operators(right))] + (isLookedUp ? [] : [.perform(.findOperators(names))])
            }
            if operators.contains(caller.user) { return [.administer(request)] }
        }
        try checkRoom(request, facts)
        let effect = Effect.authorise(
            request.number,
            connection: request.connection,
            right,
            isInteractive: request.isInteractive
        )
        return [.wait(request, for: .permission), .perform(effect)]
    }

    /// Checks that few enough other requests of the caller's user wait for a permission, a lookup or the log.
    private func checkRoom(_ request: Request, _ facts: Facts) throws(Refusal) {
        let user = facts.connected[request.connection]?.caller.user
        let others = facts.waiting.count { entry in
            switch entry.reason {
            case .permission, .operators, .logRead:
                entry.request.number != request.number
                    && facts.connected[entry.request.connection]?.caller.user == user
            default: false
            }
        }
        guard others < Self.requestsOfUser else { throw .tooManyQuestions }
    }

    /// Stores the users behind the operators' names. Continues the requests that waited for them, and refuses the
    /// pending status, log and round requests of former operators: they can send these again for polkit's decision. A
    /// sign-out that waits for the disk has already happened.
    mutating func operatorsFound(_ names: [String], _ users: Set<UInt32>, _ facts: Facts) -> [Decision] {
        isLookedUp = false
        var decisions: [Decision] = []
        if names == facts.policy.operatorNames {
            let former = operators.subtracting(users)
            (operators, foundAt) = (users, facts.now.uptime)
            let refused = facts.waiting.filter { entry in
                switch entry.reason {
                case .permission, .operators: false
                default: Self.isStatus(entry.request, of: former, facts)
                }
            }
            decisions += refused.map { .refuse($0.request, .notPermitted) }
        }
        for entry in facts.waiting.filter({ if case .operators = $0.reason { true } else { false } }) {
            guard case .operators(let right) = entry.reason,
                let caller = facts.connected[entry.request.connection]?.caller
            else { continue }
            do throws(Refusal) {
                decisions += try permit(right, entry.request, caller, facts)
            } catch {
                decisions.append(.refuse(entry.request, error))
            }
        }
        return decisions
    }

    private static func isStatus(_ request: Request, of users: Set<UInt32>, _ facts: Facts) -> Bool {
        guard request.call.right == .status, let caller = facts.connected[request.connection]?.caller else {
            return false
        }
        return users.contains(caller.user) && !caller.isAdministrator
    }

    func authorised(_ number: UInt64, _ isGranted: Bool, _ facts: Facts) -> [Decision] {
        guard let entry = facts.waiting[number], case .permission = entry.reason else { return [] }
        var request = entry.request
        guard isGranted else { return [.refuse(request, .notPermitted)] }
        // The time that a person spends at polkit's prompt does not count against the caller's patience.
        request.askedAt = facts.now.uptime
        return [.administer(request)]
    }

    // MARK: The log

    func readLog(_ request: Request, _ facts: Facts) throws(Refusal) -> [Decision] {
        guard case .log(let after, let limit, _) = request.call else { throw .requestAbandoned }
        try checkRoom(request, facts)
        let filter = after.map { AuditFilter(after: $0, first: limit) } ?? AuditFilter(last: limit)
        return [
            .wait(request, for: .logRead(writes: facts.disk.logWrites)), .perform(.readLog(request.number, filter)),
        ]
    }

    /// Handles the result of reading the log. If there are no entries, the request waits for the next ones.
    func logRead(_ number: UInt64, _ result: Result<[AuditLine], Refusal>, _ facts: Facts) -> [Decision] {
        guard let entry = facts.waiting[number], case .logRead(let writes) = entry.reason,
            case .log(let after, _, let patience) = entry.request.call
        else { return [] }
        let until = entry.request.askedAt + patience
        switch result {
        case .failure(let refusal): return [.refuse(entry.request, refusal)]
        case .success(let lines):
            if !lines.isEmpty || after == nil || until <= facts.now.uptime { return [.respond(number, .log(lines))] }
            // Entries may have been written since the log was read. If not, waiting requests are not checked again,
            // because callers can repeat this request without limit.
            return [.wait(entry.request, until: until, for: .log(writes: writes))]
                + (writes == facts.disk.logWrites ? [] : [.checkWaiting])
        }
    }
}

extension Request.Call {
    /// The right that the caller needs; `nil` if the request is not administrative, or only for root and the broker's
    /// user.
    var right: Administration.Right? {
        switch self {
        case .runningApps, .status, .log, .round(_, _, _, _, isAdministration: true): .status
        case .signOutAnyone: .signOut
        case .waive: .waive
        default: nil
        }
    }
}
