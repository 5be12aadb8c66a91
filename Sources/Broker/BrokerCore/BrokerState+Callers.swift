import DeviceConfiguration
import FoundationEssentials
@_spi(Extensions) import SharedDevice

/// The apps behind the connections: how they are identified, and how they end.
extension BrokerState {
    mutating func identify(_ request: Request, _ caller: Caller) throws(Refusal) -> Participant {
        if let known = connected[request.connection]?.apps[request.claimed] { return known }
        guard connected[request.connection].map({ $0.apps.count < Self.namesOfConnection }) ?? false else {
            throw .tooManyNames
        }
        let identity = try eligibility.decide(caller.credentials, claiming: request.claimed).get()
        let participant = identity.participant(of: caller.user)
        // An app that received a manifest keeps the debts of its earlier name.
        for key in eligibility.formerKeys(of: identity, caller.credentials) {
            guard facts.ledger.rename(Participant(app: key, user: caller.user), to: participant) else { continue }
            change()
            checkRights()
        }
        let wasRunning = facts.isRunning(participant)
        facts.connected[request.connection]?.apps[request.claimed] = participant
        if !wasRunning { touch() }
        return participant
    }

    /// Answers an app that may no longer take part about its debts, so that it can settle them.
    mutating func answerDebtor(
        _ request: Request,
        _ debtor: Participant,
        _ refusal: Refusal
    ) throws(Refusal) -> Response? {
        if case .currentAccount = request.call, facts.ledger.ask(debtor, on: request.connection) {
            needsDisk(within: Facts.Disk.lazyWrite)
        }
        let owed = ledger.owed(by: debtor, on: request.connection)
        guard !owed.isEmpty else { throw refusal }
        switch request.call {
        case .currentAccount:
            tell(debtor)
            let isWithheld = device.account != nil && facts.mayUse(debtor, in: device)
            return session(nil, owing: owed, isWithheld: isWithheld)
        case .report: return report(request, debtor)
        default: throw refusal
        }
    }

    mutating func use(_ manifests: [AppManifest], _ problems: [String], _ unknown: [String]) {
        let former = facts.manifests.compactMap { manifest in manifest.allowedUsers.map { (manifest.identifier, $0) } }
        facts.manifests = manifests
        (manifestProblems, facts.unknownManifests) = (problems, unknown)
        identifyAnew()
        checkRights()
        let present = manifests.compactMap { manifest in manifest.allowedUsers.map { (manifest.identifier, $0) } }
        // Apps may have the account now that could not have it before.
        if device.account != nil, !former.elementsEqual(present, by: ==) { announce(modeChanged: false) }
        apply(wakeups.startDebtors(facts))
    }

    /// Identifies the apps of all connections by the present rules. An app with an unchanged result continues; the
    /// others end, and start again at their next call.
    mutating func identifyAnew() {
        // Without a valid configuration the administrator's exclusions are unknown.
        facts.eligibility = AppEligibility(
            lists: policy.lists,
            requiresEnrolment: policy.requiresEnrolment || !policy.isConfigured,
            manifests: manifests,
            requiresProof: facts.requiresProof,
            requiresCleanup: policy.cleanup.deadline != nil
        )
        var ended: Set<Participant> = []
        for (connection, entry) in connected {
            let kept = entry.apps.filter { claimed, participant in
                guard case .success(let app) = eligibility.decide(entry.caller.credentials, claiming: claimed) else {
                    return false
                }
                return app.participant(of: entry.caller.user) == participant
            }
            ended.formUnion(Set(entry.apps.values).subtracting(kept.values))
            facts.connected[connection]?.apps = kept
        }
        for participant in ended.sorted() where !facts.isRunning(participant) { appEnded(participant) }
        checkPendingSignIn()
        holdForAdapters(pending?.next ?? device)
    }

    /// The ledger may list a connection that has not called since the broker's start.
    mutating func leave(_ connection: String, mark: UInt64) {
        let apps = Set((connected[connection]?.apps ?? [:]).values)
        abandonRequests(of: connection)
        apply(enforcement.leave(connection, facts))
        apply(screen.leave(connection, facts))
        facts.connected[connection] = nil
        for (session, participant) in facts.ledger.connectionEnded(connection, mark: mark) {
            enterRepeatable(.interrupted, "interrupted", session, participant)
            needsDisk(within: .zero)
            // Tells the app's other processes about the debt.
            wakeups.remind(isForAll: true, facts)
        }
        for participant in apps.sorted() where !facts.isRunning(participant) { appEnded(participant) }
        touch()
    }

    mutating func abandonRequests(of connection: String) {
        for entry in facts.waiting.remove(where: { $0.request.connection == connection }) {
            switch entry.reason {
            case .signIn, .directoryToken: refuse(entry.request, .requestAbandoned)
            default: abandon(entry.request.number)
            }
        }
        apply(signIns.abandonChecks { $0.connection == connection })
        apply(provider.abandonRequests(of: connection))
        if pending?.attempt?.connection == connection {
            // The app has ended, so the person may have left the device.
            dropPendingSignIn(because: .requestAbandoned)
        }
        apply(signIns.endPrompts(of: connection, because: .requestAbandoned))
    }
}
