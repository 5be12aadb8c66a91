import DBus
import DeviceConfiguration
import FoundationEssentials
@_spi(Extensions) import SharedDevice

/// The requests of administrators.
extension BrokerState {
    /// Carries out a request whose caller has the required right.
    ///
    /// - Returns: The response; `nil` if the request waits.
    mutating func administer(_ request: Request) throws(Refusal) -> BrokerProtocol.Fields? {
        switch request.call {
        case .signOutAnyone(let identifier, let session, let reason):
            return try signOut(request, identifier, session, cause: reason)
        case .waive(let app, let user, let session, let reason): return waive(request, app, user, session, reason)
        case .runningApps: return runningApps
        case .status: return status(request)
        case .log:
            apply(try administration.readLog(request, facts))
            return nil
        case .round: return round(request)
        default: return [:]
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
}
