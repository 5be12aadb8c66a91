import DBus
import DeviceConfiguration
import DeviceStorage
import FoundationEssentials
@_spi(Extensions) import SharedDevice

/// The requests of administrators, and the check of their rights.
extension BrokerState {
    /// A right that a caller needs for an administrative request.
    package enum Right: String, Sendable {
        case status
        case signOut = "sign-out"
        case waive

        /// The name of the polkit action.
        var action: String { "org.notifycenter.shared-device.\(rawValue)" }
        /// Whether the operators of the managed configuration have this right. They may only sign people out and see
        /// the device.
        var isOperators: Bool { self != .waive }
    }

    /// A request that waits for polkit, for the lookup of operators or for the log.
    struct Consulted: Sendable {
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

    /// The users behind the operators' names. The members of a group can change without a change of the configuration.
    struct KnownOperators: Sendable {
        var users: Set<UInt32> = []
        var foundAt = Duration.zero
        var isLookedUp = false
    }

    /// How long a lookup of the operators' names stays valid.
    static let operatorsAge = Duration.seconds(60)
    /// How many requests of one user may wait for polkit, for the lookup of operators or for the log at a time.
    static let consultationsOfUser = 8

    // MARK: Rights

    /// Checks whether the caller has the right. Root, the broker's user, operators and users whom polkit permits have
    /// it.
    ///
    /// - Returns: `false` if polkit is asked or the operators are looked up. The request continues with the result.
    mutating func permit(_ right: Right, _ request: Request, _ caller: Caller) throws(Refusal) -> Bool {
        if caller.isAdministrator { return true }
        if right.isOperators {
            if !policy.operatorNames.isEmpty, now.uptime - operators.foundAt >= Self.operatorsAge {
                try consult(request, .operators(right))
                findOperators()
                return false
            }
            if operators.users.contains(caller.user) { return true }
        }
        try consult(request, .permission)
        effects.append(
            .authorise(request.number, connection: request.connection, right, isInteractive: request.isInteractive)
        )
        return false
    }

    private mutating func findOperators() {
        guard !operators.isLookedUp else { return }
        operators.isLookedUp = true
        effects.append(.findOperators(policy.operatorNames))
    }

    /// Stores the users behind the operators' names, from the configuration or from a later lookup. Continues the
    /// requests that waited for the lookup.
    mutating func operatorsFound(_ names: [String], _ users: Set<UInt32>) {
        operators.isLookedUp = false
        if names == policy.operatorNames {
            let former = operators.users.subtracting(users)
            (operators.users, operators.foundAt) = (users, now.uptime)
            refuseFormerOperators(former)
        }
        for number in consulted.keys.sorted() {
            guard let entry = consulted[number], case .operators(let right) = entry.reason,
                let caller = connected[entry.request.connection]?.caller
            else { continue }
            consulted[number] = nil
            do throws(Refusal) {
                if try permit(right, entry.request, caller), let fields = try administer(entry.request) {
                    reply(number, fields)
                }
            } catch {
                refuse(entry.request, error)
            }
        }
    }

    private mutating func consult(_ request: Request, _ reason: Consulted.Reason) throws(Refusal) {
        let user = connected[request.connection]?.caller.user
        let own = consulted.values.count { connected[$0.request.connection]?.caller.user == user }
        guard own < Self.consultationsOfUser else { throw .tooManyQuestions }
        consulted[request.number] = Consulted(request: request, reason: reason)
    }

    /// Refuses the pending status, log and round requests of users who are no longer operators. If polkit permits it,
    /// they can send the request again. A sign-out that only waits for the disk has already happened and is not
    /// refused.
    mutating func refuseFormerOperators(_ users: Set<UInt32>) {
        guard !users.isEmpty else { return }
        func isTheirs(_ request: Request) -> Bool {
            guard request.call.right == .status, let caller = connected[request.connection]?.caller else {
                return false
            }
            return users.contains(caller.user) && !caller.isAdministrator
        }
        let isPermitted: (Consulted) -> Bool = { if case .log = $0.reason { true } else { false } }
        let held = waiting.requests.map(\.request) + consulted.values.filter(isPermitted).map(\.request)
        for request in held.filter(isTheirs).sorted(by: { $0.number < $1.number }) {
            waiting[request.number] = nil
            consulted[request.number] = nil
            refuse(request, .notPermitted)
        }
    }

    /// Handles polkit's decision. The request is no longer in ``consulted`` if the caller has disconnected.
    mutating func authorised(_ number: UInt64, _ isGranted: Bool) {
        guard let entry = consulted.removeValue(forKey: number) else { return }
        do throws(Refusal) {
            guard isGranted else { throw .notPermitted }
            var request = entry.request
            // The time that a person spends at polkit's prompt does not count against the caller's patience.
            request.askedAt = now.uptime
            if let fields = try administer(request) { reply(number, fields) }
        } catch {
            refuse(entry.request, error)
        }
    }

    /// Carries out a request whose caller has the required right.
    ///
    /// - Returns: The response; `nil` if the request waits.
    mutating func administer(_ request: Request) throws(Refusal) -> BrokerProtocol.Fields? {
        switch request.call {
        case .signOutAnyone(let identifier, let session, let reason):
            try signOut(request, identifier, session, cause: reason)
        case .waive(let app, let user, let session, let reason): waive(request, app, user, session, reason)
        case .runningApps: runningApps
        case .status: status(request)
        case .log: try readLog(request)
        case .round: round(request)
        default: [:]
        }
    }

    // MARK: Removed users

    /// Forgets the account of a user who was removed from the directory.
    ///
    /// The directory does not remove a user who is signed in. A sign-in that was in progress at that time ends here.
    mutating func forgetAccount(_ identifier: String) {
        if pending?.next.account?.hasIdentifier(identifier) == true { dropPendingSignIn(because: .requestAbandoned) }
        if let next = try? device.signingOut(identifier) { enter(next, cause: "the user's removal") }
        if facts.ledger.forget(identifier) { needsDisk(within: .zero) }
    }

    // MARK: The device

    /// Updates the list of problems. The status contains it, and problems appear and disappear without any other change
    /// that would wake up the requests for the status.
    mutating func noteProblems() {
        let starts = wakeups.problems.sorted { $0.key < $1.key }.map(\.value)
        let single = [disk.problem, keyProblem, seat.problem, enforcement.problem(facts)]
        let next = single.compactMap(\.self) + starts + enforcement.problems(facts) + manifestProblems
        guard next != problems else { return }
        problems = next
        touch()
    }

    /// Returns the status at once if the caller's revision is out of date. Otherwise the request waits for a change.
    mutating func status(_ request: Request) -> BrokerProtocol.Fields? {
        guard case .status(let known, let patience) = request.call else { return [:] }
        let deadline = request.askedAt + patience
        if revision != known || deadline <= now.uptime { return status }
        wait(request, until: deadline, for: .status)
        return nil
    }

    private var status: BrokerProtocol.Fields {
        var fields = deviceInformation
        fields["revision"] = .uint64(revision)
        fields["time"] = .double(now.wall.timeIntervalSince1970)
        fields["account"] = device.account?.fields
        fields["isStored"] = .boolean(isSessionOnDisk)
        if device.account != nil, let session = ledger.sessions[device.epoch] {
            fields["signedInAt"] = .double(session.startedAt.timeIntervalSince1970)
        }
        fields["cleanupPolicy"] = .string(policy.cleanup.kind.rawValue)
        fields["cleanupTimeout"] = policy.cleanup.timeout.map { .double($0 / .seconds(1)) }
        fields["rounds"] = .array(ledger.rounds.suffix(Self.keptRounds).map { .uint64($0) }, of: "t")
        fields["apps"] = .array(apps, of: "a{sv}")
        fields["enforcementProblems"] = .array(enforcement.problems(facts).map { .string($0) }, of: "s")
        fields["manifestProblems"] = .array(manifestProblems.map { .string($0) }, of: "s")
        return fields
    }

    /// The apps that have a manifest, are running, hold data or owe a cleanup.
    private var apps: [DBusValue] {
        let running = Set(connected.values.flatMap(\.apps.values))
        let holding = device.account == nil ? [] : Set((ledger.parts[device.epoch] ?? [:]).keys)
        let debtors = ledger.debtors
        let known = running.union(holding).union(debtors)
        let others = Set(manifests.map(\.identifier)).subtracting(known.map(\.app))
        let entries = known.sorted().map { participant -> BrokerProtocol.Fields in
            [
                "identifier": .string(participant.app),
                "user": .uint32(participant.user),
                "isRunning": .boolean(running.contains(participant)),
                "holdsData": .boolean(holding.contains(participant)),
                "owes": .array(ledger.owed(by: participant).map { .uint64($0.epoch) }, of: "t"),
            ]
        }
        return (entries + others.sorted().map { ["identifier": .string($0)] }).map { fields in
            guard let app = fields["identifier"]?.stringValue, let problem = wakeups.problems[app] else {
                return .fields(fields)
            }
            return .fields(fields.merging(["startProblem": .string(problem)]) { $1 })
        }
    }

    // MARK: The log

    mutating func readLog(_ request: Request) throws(Refusal) -> BrokerProtocol.Fields? {
        guard case .log(let after, let limit, _) = request.call else { throw .requestAbandoned }
        try consult(request, .log(writes: disk.logWrites))
        let filter = after.map { AuditLog.Filter(after: $0, first: limit) } ?? AuditLog.Filter(last: limit)
        effects.append(.readLog(request.number, filter))
        return nil
    }

    /// Handles the result of reading the log. If there are no entries, the request waits for the next ones.
    mutating func logRead(_ number: UInt64, _ result: Result<[AuditLog.Line], StoreError>) {
        guard let entry = consulted.removeValue(forKey: number), case .log(let writes) = entry.reason,
            case .log(let after, _, let patience) = entry.request.call
        else { return }
        let until = entry.request.askedAt + patience
        switch result {
        case .failure(let error): refuse(entry.request, .failed("\(error)"))
        case .success(let lines):
            if !lines.isEmpty || after == nil || until <= now.uptime { return reply(number, Self.logFields(lines)) }
            wait(entry.request, until: until, for: .log(writes: writes))
            // Entries may have been written since the log was read. If not, waiting requests are not checked again,
            // because callers can repeat this request without limit.
            if writes != disk.logWrites { isTouched = true }
        }
    }

    /// The entries without the person: a caller that watches a device need not learn who used it when.
    static func logFields(_ lines: [AuditLog.Line]) -> BrokerProtocol.Fields {
        let entries = lines.map { line -> DBusValue in
            var fields: BrokerProtocol.Fields = [
                "sequence": .uint64(UInt64(clamping: line.sequence)),
                "at": .double(line.entry.at.timeIntervalSince1970),
                "event": .string(line.entry.event.rawValue),
            ]
            fields["session"] = line.entry.session.map { .uint64($0) }
            fields["app"] = line.entry.app.map { .string($0) }
            fields["user"] = line.entry.user.map { .uint32($0) }
            fields["detail"] = line.entry.detail.map { .string($0) }
            return .fields(fields)
        }
        return ["entries": .array(entries, of: "a{sv}")]
    }
}

extension Request.Call {
    /// The right that the caller needs; `nil` if the request is for apps or services, or only for root and the broker's
    /// user.
    var right: BrokerState.Right? {
        switch self {
        case .runningApps, .status, .log, .round(_, _, _, _, isAdministration: true): .status
        case .signOutAnyone: .signOut
        case .waive: .waive
        default: nil
        }
    }
}
