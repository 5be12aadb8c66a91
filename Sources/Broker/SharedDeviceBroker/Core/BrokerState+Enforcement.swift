import Basics
import DBus
import DeviceConfiguration
import FoundationEssentials
import Logging
@_spi(Extensions) import SharedDevice

/// The state of enforced cleanup: the late apps, and the enforcement programs that stop them and delete their data.
///
/// An app is handed over to such a program once its deadline has passed, unless a person is signed in. Until the
/// program reports, sign-in is blocked and the app's own calls are refused: it neither cleans up nor starts again while
/// its data is deleted. The app's own reports do not move the deadline.
struct Enforcement: Sendable {
    struct Failure: Sendable {
        let problem: String
        /// When the app is handed over again.
        let next: Duration
        let pause: Duration
    }

    var failures: [Participant: Failure] = [:]
    /// The connections of the enforcement programs.
    var programs: Set<String> = []
    /// The apps that were late at the last check. Each is logged once.
    var late: Set<Participant> = []

    static let firstPause = Duration.seconds(5)
    /// How many apps are claimed at a time. The others follow when those are done.
    static let mostClaims = 64
}

extension BrokerState {
    // MARK: Late apps

    /// The apps that owe an enforceable cleanup, with their deadlines. Empty during a session or a sign-in, because
    /// enforcement would delete the present user's data with the earlier data.
    private var deadlines: [Participant: CleanupLedger.Overdue] {
        guard let deadline = policy.cleanup.deadline, device.account == nil, pending == nil else { return [:] }
        return ledger.deadlines(deadline, at: now).filter { isEnforceable($0.key) }
    }

    private func isEnforceable(_ participant: Participant) -> Bool {
        eligibility.manifest(of: participant.app)?.cleanup?.user.number == participant.user
    }

    /// When the next app becomes late or is tried again.
    var nextDue: Duration? {
        let times = deadlines.values.map(\.due) + enforcement.failures.values.map(\.next)
        return times.filter { $0 > now.uptime }.min()
    }

    /// Logs the apps that have become late, and has the waiting requests of enforcement programs checked.
    mutating func noteOverdue() {
        let deadlines = deadlines
        let late = Set(deadlines.filter { $0.value.due <= now.uptime }.keys)
        for participant in late.subtracting(enforcement.late).sorted() {
            let details = ["app": participant.app, "user": "\(participant.user)"]
            effects.append(.note(.warning, "the deadline of a cleanup has passed", details))
            if let problem = enforcementProblem { effects.append(.note(.error, "not enforced", ["reason": problem])) }
        }
        enforcement.late = late
        enforcement.failures = enforcement.failures.filter { deadlines[$0.key] != nil }
        if !late.isEmpty { isTouched = true }
    }

    /// Why the policy's enforcement cannot take place; `nil` if there is no problem.
    var enforcementProblem: String? {
        guard policy.cleanup.deadline != nil, enforcement.programs.isEmpty else { return nil }
        return "no program enforces cleanups: an app that hangs keeps the device closed; run: systemctl status "
            + AppCleanup.enforcementUnit
    }

    /// The problems of enforcement: for each app, its identifier and a sentence.
    var enforcementProblems: [String] {
        guard policy.cleanup.deadline != nil else { return [] }
        let failed = enforcement.failures.map { "\($0.app) \($1.problem)" }
        let hopeless = ledger.debtors.filter { !isEnforceable($0) }.map {
            "\($0.app) has no manifest with “cleanup” for user \($0.user): it has to clean up by itself, or an administrator "
                + "waives the cleanup"
        }
        return (failed + hopeless).sorted()
    }

    // MARK: The enforcement program

    /// Checks that the caller is the enforcement program. Where services are told apart by their units, it has to run
    /// as root.
    func checkEnforces(_ caller: Caller) throws(Refusal) {
        let isProgram =
            facts.isService(caller, unit: AppCleanup.enforcementUnit) && (caller.user == 0 || !facts.requiresProof)
        guard isProgram else { throw .notEnforcing }
    }

    /// Hands over the late apps that are not claimed yet. If there are none, the request waits.
    ///
    /// - Returns: The response; `nil` if the request waits for a late app or for the disk.
    mutating func overdue(_ request: Request, _ caller: Caller) throws(Refusal) -> BrokerProtocol.Fields? {
        guard case .overdue(let underWay, _) = request.call else { return [:] }
        try checkEnforces(caller)
        if enforcement.programs.insert(caller.connection).inserted { touch() }
        abandonQuestions(of: caller.connection)
        // The program is not working on these: the response that handed them over, from this broker or an earlier one,
        // was lost. Apps that are still late are handed over again.
        let released = claims(of: caller.connection).filter { !underWay.contains($0) }
        for participant in released { facts.ledger.release(participant) }
        let answer = handOver(request, to: caller.connection)
        claimsEnded(released.filter { ledger.claims[$0] == nil })
        return answer
    }

    /// Drops earlier requests of the program. It sends one at a time, so it has given up the earlier ones and would not
    /// receive the apps that they hand over.
    private mutating func abandonQuestions(of connection: String) {
        let earlier = waiting.numbers { entry in
            guard entry.request.connection == connection, case .overdue = entry.request.call else { return false }
            return true
        }
        for number in earlier {
            waiting[number] = nil
            effects.append(.reply(number, .failure(.requestAbandoned)))
        }
    }

    private func claims(of connection: String) -> [Participant] {
        ledger.claims.filter { $0.value.connection == connection }.keys.sorted()
    }

    /// Lets apps continue whose claims have ended. During a claim their own processes were refused, and the bus was not
    /// asked to start them.
    private mutating func claimsEnded(_ participants: [Participant]) {
        guard !participants.isEmpty else { return }
        for participant in participants { wakeups.claimEnded(of: participant.app, facts) }
        effects.append(.announce(modeChanged: false))
        needsDisk(within: .zero)
        touch()
    }

    /// Checks again for late apps. Apps that the program was working on when the request came may have been reported by
    /// now.
    mutating func handOver(_ request: Request, to connection: String) -> BrokerProtocol.Fields? {
        guard case .overdue(_, let patience) = request.call else { return [:] }
        let apps = claimOverdue(for: connection).map { participant, claim in
            DBusValue.fields([
                "app": .string(participant.app), "user": .uint32(participant.user),
                "sessions": .array(claim.sessions.sorted().map { .uint64($0) }, of: "t"),
                "connections": connections(of: participant, claim),
            ])
        }
        let fields: BrokerProtocol.Fields = ["overdue": .array(apps, of: "a{sv}")]
        if !apps.isEmpty {
            // The claims are committed first, so that a restarted broker also waits for the reports.
            wait(request, for: .stored(fields, nil))
            return nil
        }
        let deadline = request.askedAt + patience
        if deadline <= now.uptime { return fields }
        wait(request, until: deadline, for: .overdue)
        return nil
    }

    /// - Returns: The new claims.
    private mutating func claimOverdue(for connection: String) -> [(Participant, CleanupLedger.Claim)] {
        var claimed: [(Participant, CleanupLedger.Claim)] = []
        for (participant, overdue) in deadlines.sorted(by: { $0.key < $1.key })
        where overdue.due <= now.uptime && ledger.claims[participant] == nil
            && enforcement.failures[participant].map({ $0.next <= now.uptime }) ?? true
            && ledger.claims.count < Enforcement.mostClaims
        {
            let claim = CleanupLedger.Claim(connection: connection, sessions: overdue.sessions)
            facts.ledger.claim(participant, claim)
            claimed.append((participant, claim))
            needsDisk(within: .zero)
            touch()
        }
        return claimed
    }

    /// The names without the part that identifies the bus, because the program is on the same bus.
    private func connections(of participant: Participant, _ claim: CleanupLedger.Claim) -> DBusValue {
        // The program itself is in the list if a broker of an earlier version stored it.
        let names = ledger.connections(of: participant, in: claim.sessions).subtracting([claim.connection])
            .compactMap { name in name.firstIndex(of: ":").map { String(name[$0...]) } }
        return .array(names.sorted().map { .string($0) }, of: "s")
    }

    /// Takes the program's report on one app: that it was stopped and its data deleted, or why not.
    ///
    /// A report counts only from the program that has the claim, and for the sessions of the claim. It does not count
    /// while a process is left that was given the account.
    mutating func reportEnforcement(_ request: Request, _ caller: Caller) throws(Refusal) -> BrokerProtocol.Fields? {
        guard case .enforced(let app, let user, let sessions, let detail, let problem) = request.call else {
            return [:]
        }
        try checkEnforces(caller)
        let participant = Participant(app: app, user: user)
        guard let claim = ledger.claims[participant], claim.connection == caller.connection,
            claim.sessions == sessions
        else { throw .notHandedOver }
        if let problem {
            let pause = enforcement.failures[participant]?.pause ?? Enforcement.firstPause
            enforcement.failures[participant] = Enforcement.Failure(
                problem: problem,
                next: now.uptime + pause,
                pause: min(pause * 2, Facts.longestPause)
            )
            facts.ledger.release(participant)
            for session in claim.sessions.sorted() {
                enterRepeatable(.notEnforced, "enforcement", session, participant, detail: problem)
            }
            effects.append(.note(.error, "a cleanup could not be enforced", ["app": app, "reason": problem]))
        } else {
            let left = connections(of: participant, claim)
            if left.stringsValue?.isEmpty == false { return ["connections": left] }
            enforcement.failures[participant] = nil
            for session in facts.ledger.enforce(participant, detail: detail, at: now) {
                noteSettled(.enforced, session, participant, detail: detail)
            }
        }
        claimsEnded([participant])
        wait(request, for: .stored([:], nil))
        return nil
    }

    /// Releases the claims of a program that has left the bus, so that its successor can take them.
    mutating func enforcerLeft(_ connection: String) {
        let released = claims(of: connection)
        for participant in released { facts.ledger.release(participant) }
        claimsEnded(released)
        guard enforcement.programs.remove(connection) != nil, let problem = enforcementProblem else { return }
        effects.append(.note(.error, "not enforced", ["reason": problem]))
    }
}
