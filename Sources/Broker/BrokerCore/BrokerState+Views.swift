import DeviceConfiguration
import FoundationEssentials
@_spi(Extensions) import SharedDevice

/// The responses to apps and administrators. Nothing here changes the state.
extension BrokerState {
    // MARK: Apps

    /// The response about the session.
    ///
    /// - Parameter isWithheld: Whether the app gets the account as soon as it has cleaned up.
    func session(_ account: Account?, owing owed: [OwedSession], isWithheld: Bool = false) -> Response {
        .session(
            SessionAnswer(
                session: DeviceSession(account: account, epoch: device.epoch),
                owed: owed,
                isWithheld: isWithheld,
                isStrict: policy.cleanup.isStrict
            )
        )
    }

    func round(of session: UInt64) -> Round? {
        let running = Set(connected.values.flatMap(\.apps.values))
        return ledger.report(of: session, isRunning: running.contains).map { Round(report: $0, revision: revision) }
    }

    var summary: DeviceSummary {
        DeviceSummary(
            mode: device.mode,
            epoch: device.epoch,
            isJoined: facts.rules.isJoined,
            identity: policy.identity,
            signInHeldFor: facts.isSignInHeld ? facts.awaited : nil,
            tenant: facts.rules.tenantIdentifier,
            organization: policy.organization,
            configurationProblem: policy.problem,
            enforcementProblem: enforcement.problem(facts),
            storeProblem: disk.problem,
            keyProblem: keyProblem,
            loginProblem: seat.problem,
            sessionEnd: sessionEnd,
            isLocked: facts.lock?.isShown == true,
            signInMethods: facts.signInMethods,
            passwordSignIn: policy.passwordSignIn,
            provider: policy.organisation.map { settings in
                ProviderSummary(
                    issuer: settings.issuer.text,
                    loopbackPorts: settings.loopbackPorts.ports,
                    needsSignIn: provider.needsPerson && device.account != nil,
                    problem: (facts.complianceProblem ?? provider.problem)?.description,
                    checkedAt: provider.session?.checkedAt
                )
            }
        )
    }

    /// What should be on the screen. Its revision is not set.
    var screenContent: ScreenAnswer {
        var content = ScreenAnswer(revision: 0, show: .nothing)
        // The program may still show the lock of an earlier run of the broker.
        if screen.isUndecided(facts) { content.show = .lock }
        guard device.mode == .shared, policy.isConfigured else { return content }
        if let account = device.account {
            guard facts.isLocked || sessionEnd?.isSoon == true else { return content }
            content.show = facts.isLocked ? .lock : .warning
            (content.username, content.displayName) = (account.username, account.displayName)
            content.end = sessionEnd
            if facts.isLocked { content.signInMethods = facts.signInMethods }
        } else if policy.identity != .loginSession, facts.isSignInHeld {
            content.show = .cleanup
        } else if facts.signInMethods.contains(.password) {
            content.show = .signIn
            content.signInMethods = facts.signInMethods
        }
        return content
    }

    // MARK: Administrators

    var runningApps: RunningApps {
        RunningApps(
            apps: Set(connected.values.flatMap { $0.apps.values.map(\.app) }).sorted(),
            holding: Set(holders.map(\.app)).sorted(),
            startProblems: wakeups.problems.map { "\($0) \($1)" }.sorted(),
            enforcementProblems: enforcement.problems(facts),
            manifestProblems: manifestProblems,
            certificates: certificates
        )
    }

    var status: DeviceStatus {
        DeviceStatus(
            device: summary,
            revision: revision,
            time: now.wall,
            account: device.account,
            isStored: !unsaved.contains(.device),
            signedInAt: device.account.flatMap { _ in ledger.sessions[device.epoch]?.startedAt },
            cleanup: policy.cleanup,
            rounds: Array(ledger.rounds.suffix(Self.keptRounds)),
            apps: apps,
            enforcementProblems: enforcement.problems(facts),
            manifestProblems: manifestProblems,
            certificates: certificates
        )
    }

    /// The apps that hold data of the open session.
    private var holders: Set<Participant> { device.account == nil ? [] : Set((ledger.parts[device.epoch] ?? [:]).keys) }

    /// The apps that have a manifest, are running, hold data or owe a cleanup.
    private var apps: [DeviceStatus.App] {
        let (running, holding) = (Set(connected.values.flatMap(\.apps.values)), holders)
        let known = running.union(holding).union(ledger.debtors)
        let others = Set(manifests.map(\.identifier)).subtracting(known.map(\.app))
        func app(_ identifier: String, _ part: DeviceStatus.Part?) -> DeviceStatus.App {
            DeviceStatus.App(identifier: identifier, part: part, startProblem: wakeups.problems[identifier])
        }
        return known.sorted().map { participant in
            let part = DeviceStatus.Part(
                user: participant.user,
                isRunning: running.contains(participant),
                holdsData: holding.contains(participant),
                owes: ledger.owed(by: participant).map(\.epoch)
            )
            return app(participant.app, part)
        } + others.sorted().map { app($0, nil) }
    }

    // MARK: Problems

    /// The problems in the status.
    var presentProblems: [String] {
        let starts = wakeups.problems.sorted { $0.key < $1.key }.map(\.value)
        let single = [disk.problem, keyProblem, seat.problem, enforcement.problem(facts)]
        return single.compactMap(\.self) + starts + enforcement.problems(facts) + manifestProblems
    }

    /// The problems with keys, and their remedies; `nil` if there are none.
    private var keyProblem: String? {
        let problems = keyTroubles + [provider.recordProblem].compactMap { $0 }
        return problems.isEmpty ? nil : problems.joined(separator: "; ")
    }
}
