import DeviceConfiguration
import FoundationEssentials
@_spi(Extensions) import SharedDevice

/// Checks the rights of callers to administrative requests, with the operators of the configuration and with polkit,
/// and reads the log for them.
package struct Administration: Sendable {
    /// A right that a caller needs for an administrative request.
    package enum Right: String, Sendable {
        case status
        case signOut = "sign-out"
        case waive

        /// Whether the operators of the managed configuration have this right. They may only sign people out and see
        /// the device.
        var isOperators: Bool { self != .waive }
    }

    /// A request that waits for polkit, for the lookup of operators or for the log.
    private struct Waiting: Sendable {
        enum Reason: Sendable {
            case permission
            /// The users behind the operators' names are being looked up.
            case operators(Right)
            /// The log is being read. `writes` is the number of log writes at that time.
            case log(writes: UInt64)
        }

        let request: Request
        let reason: Reason
    }

    private var waiting: [UInt64: Waiting] = [:]
    /// The users behind the operators' names. The members of a group can change without a change of the configuration.
    private var operators: Set<UInt32> = []
    private var foundAt = Duration.zero
    private var isLookedUp = false

    /// How long a lookup of the operators' names stays valid.
    static let operatorsAge = Duration.seconds(60)
    /// How many requests of one user may wait here at a time.
    static let requestsOfUser = 8

    // MARK: Rights

    /// Carries out the request if its caller has the right. Root, the broker's user, operators and users whom polkit
    /// permits have it. The request waits while polkit is asked or the operators are looked up.
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
                try wait(request, for: .operators(right), facts)
                defer { isLookedUp = true }
                return isLookedUp ? [] : [.perform(.findOperators(names))]
            }
            if operators.contains(caller.user) { return [.administer(request)] }
        }
        try wait(request, for: .permission, facts)
        let (number, connection) = (request.number, request.connection)
        return [.perform(.authorise(number, connection: connection, right, isInteractive: request.isInteractive))]
    }

    private mutating func wait(_ request: Request, for reason: Waiting.Reason, _ facts: Facts) throws(Refusal) {
        let user = facts.connected[request.connection]?.caller.user
        let own = waiting.values.count { facts.connected[$0.request.connection]?.caller.user == user }
        guard own < Self.requestsOfUser else { throw .tooManyQuestions }
        waiting[request.number] = Waiting(request: request, reason: reason)
    }

    /// Stores the users behind the operators' names, from the configuration or from a later lookup. Continues the
    /// requests that waited for the lookup, and refuses the pending status, log and round requests of users who are no
    /// longer operators.
    ///
    /// If polkit permits it, they can send the request again. A sign-out that only waits for the disk has already
    /// happened and is not refused.
    mutating func operatorsFound(_ names: [String], _ users: Set<UInt32>, _ facts: Facts) -> [Decision] {
        isLookedUp = false
        var decisions: [Decision] = []
        if names == facts.policy.operatorNames {
            let former = operators.subtracting(users)
            (operators, foundAt) = (users, facts.now.uptime)
            for (number, entry) in waiting.sorted(by: { $0.key < $1.key }) {
                guard case .log = entry.reason, Self.isStatus(entry.request, of: former, facts) else { continue }
                waiting[number] = nil
                decisions.append(.refuse(entry.request, .notPermitted))
            }
            if !former.isEmpty { decisions.append(.refuseStatus(of: former)) }
        }
        for (number, entry) in waiting.sorted(by: { $0.key < $1.key }) {
            guard case .operators(let right) = entry.reason,
                let caller = facts.connected[entry.request.connection]?.caller
            else { continue }
            waiting[number] = nil
            do throws(Refusal) {
                decisions += try permit(right, entry.request, caller, facts)
            } catch {
                decisions.append(.refuse(entry.request, error))
            }
        }
        return decisions
    }

    /// Whether it is a status, log or round request of one of these users, who needs the right of an operator.
    static func isStatus(_ request: Request, of users: Set<UInt32>, _ facts: Facts) -> Bool {
        guard request.call.right == .status, let caller = facts.connected[request.connection]?.caller else {
            return false
        }
        return users.contains(caller.user) && !caller.isAdministrator
    }

    /// Handles polkit's decision, unless the caller has disconnected.
    mutating func authorised(_ number: UInt64, _ isGranted: Bool, _ facts: Facts) -> [Decision] {
        guard var request = waiting.removeValue(forKey: number)?.request else { return [] }
        guard isGranted else { return [.refuse(request, .notPermitted)] }
        // The time that a person spends at polkit's prompt does not count against the caller's patience.
        request.askedAt = facts.now.uptime
        return [.administer(request)]
    }

    mutating func abandonRequests(of connection: String) -> [Decision] {
        let abandoned = waiting.filter { $0.value.request.connection == connection }.keys.sorted()
        for number in abandoned { waiting[number] = nil }
        return abandoned.map { .perform(.reply($0, .failure(.requestAbandoned))) }
    }

    // MARK: The log

    mutating func readLog(_ request: Request, _ facts: Facts) throws(Refusal) -> [Decision] {
        guard case .log(let after, let limit, _) = request.call else { throw .requestAbandoned }
        try wait(request, for: .log(writes: facts.disk.logWrites), facts)
        let filter = after.map { AuditFilter(after: $0, first: limit) } ?? AuditFilter(last: limit)
        return [.perform(.readLog(request.number, filter))]
    }

    /// Handles the result of reading the log. If there are no entries, the request waits for the next ones.
    mutating func logRead(_ number: UInt64, _ result: Result<[AuditLine], Refusal>, _ facts: Facts) -> [Decision] {
        guard let entry = waiting.removeValue(forKey: number), case .log(let writes) = entry.reason,
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
    /// The right that the caller needs; `nil` if the request is for apps or services, or only for root and the broker's
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
