import Basics
import DBus
import DeviceConfiguration
import FoundationEssentials
@_spi(Extensions) import SharedDevice

/// The responses to apps and administrators. Nothing here changes the state.
extension BrokerState {
    // MARK: Apps

    /// The response about the session. If an account is signed in but not included, the response says that it is
    /// withheld.
    func sessionFields(_ account: Account?, owing owed: [OwedSession]) -> BrokerProtocol.Fields {
        SessionAnswer(
            session: DeviceSession(account: account, epoch: device.epoch),
            owed: owed,
            isWithheld: account == nil && device.account != nil,
            isStrict: policy.cleanup.isStrict
        ).fields
    }

    func roundFields(of session: UInt64) -> BrokerProtocol.Fields {
        let running = Set(connected.values.flatMap(\.apps.values))
        guard let report = ledger.report(of: session, isRunning: running.contains) else { return [:] }
        return ["round": report.fields, "revision": .uint64(revision)]
    }

    var deviceInformation: BrokerProtocol.Fields {
        var fields: BrokerProtocol.Fields = [
            "mode": .string(device.mode.rawValue),
            "epoch": .uint64(device.epoch),
            "brokerVersion": .string(ProjectVersion.number),
            "joined": .boolean(facts.rules.isJoined),
            "identity": .string(policy.identity.rawValue),
        ]
        if facts.isSignInHeld { fields["signInHeldFor"] = .array(facts.awaited.map { .string($0) }, of: "s") }
        fields["tenant"] = facts.rules.tenantIdentifier.map { .string($0) }
        fields["organization"] = policy.organization.map { .string($0) }
        fields["configurationProblem"] = policy.problem.map { .string($0) }
        fields["enforcementProblem"] = enforcement.problem(facts).map { .string($0) }
        fields["storeProblem"] = disk.problem.map { .string($0) }
        fields["keyProblem"] = keyProblem.map { .string($0) }
        fields["loginProblem"] = seat.problem.map { .string($0) }
        return fields.merging(providerInformation) { $1 }
    }

    /// The information for people and prompts on sign-in methods and the organisation's provider.
    private var providerInformation: BrokerProtocol.Fields {
        var fields: BrokerProtocol.Fields = [
            "signInMethods": .array(facts.signInMethods.map { .string($0.rawValue) }, of: "s"),
            "passwordSignIn": .boolean(policy.passwordSignIn),
        ]
        guard let settings = policy.organisation else { return fields }
        fields["issuer"] = .string(settings.issuer.text)
        fields["loopbackPorts"] = .array(settings.loopbackPorts.ports.map { .uint16($0) }, of: "q")
        fields["needsSignIn"] = .boolean(provider.needsPerson && device.account != nil)
        fields["providerProblem"] = (facts.complianceProblem ?? provider.problem).map {
            .string($0.description)
        }
        fields["providerCheckedAt"] = provider.session.map { .double($0.checkedAt.timeIntervalSince1970) }
        return fields
    }

    // MARK: Administrators

    var runningApps: BrokerProtocol.Fields {
        let running = Set(connected.values.flatMap { $0.apps.values.map(\.app) })
        let holding = device.account == nil ? [] : Set((ledger.parts[device.epoch] ?? [:]).keys.map(\.app))
        let problems = wakeups.problems.map { "\($0) \($1)" }
        return [
            "startProblems": .array(problems.sorted().map { .string($0) }, of: "s"),
            "enforcementProblems": .array(enforcement.problems(facts).map { .string($0) }, of: "s"),
            "manifestProblems": .array(manifestProblems.map { .string($0) }, of: "s"),
            "apps": .array(running.sorted().map { .string($0) }, of: "s"),
            "holding": .array(holding.sorted().map { .string($0) }, of: "s"),
        ]
    }

    var status: BrokerProtocol.Fields {
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

    // MARK: Problems

    /// The problems in the status.
    var presentProblems: [String] {
        let starts = wakeups.problems.sorted { $0.key < $1.key }.map(\.value)
        let single = [disk.problem, keyProblem, seat.problem, enforcement.problem(facts)]
        return single.compactMap(\.self) + starts + enforcement.problems(facts) + manifestProblems
    }

    /// Whether the present state of the session is committed.
    var isSessionOnDisk: Bool { !unsaved.contains(.device) }

    /// The problems with keys, and their remedies; `nil` if there are none.
    private var keyProblem: String? {
        let problems = keyTroubles + [provider.recordProblem].compactMap { $0 }
        return problems.isEmpty ? nil : problems.joined(separator: "; ")
    }
}
