import DBusTransport
import DeviceConfiguration
import FoundationEssentials
import Logging
import SharedDevice

/// Enforced cleanup: who is late, who is handed to the program that stops and deletes, and what it reports.
///
/// An app is handed over once its deadline has passed while nobody is signed in. From then on until the report nobody signs in, and the app's own
/// calls are refused: it neither cleans up nor starts anew while its data is deleted. An app that is late by its own fault cannot move the deadline.
struct Enforcement: Sendable {
    /// A try that failed.
    struct Failure: Sendable {
        let problem: String
        /// When the app is handed over again.
        let next: Duration
        let pause: Duration
    }

    var failures: [Participant: Failure] = [:]
    /// The connections of programs that enforce.
    var programs: Set<String> = []
    /// Who was late at the last look, for the log.
    var late: Set<Participant> = []

    static let firstPause = Duration.seconds(5)
    /// How many apps are handed over at a time. The rest follows when those are done.
    static let mostClaims = 64
}

extension BrokerState {
    // MARK: Who is late

    /// Whoever owes a cleanup that can be enforced, with the deadline. Nobody while somebody is signed in: the data of the present user would go with
    /// that of earlier ones.
    private var deadlines: [Participant: CleanupLedger.Overdue] {
        guard let deadline = policy.cleanup.deadline, device.account == nil, pending == nil else { return [:] }
        return ledger.deadlines(deadline, at: now).filter { isEnforceable($0.key) }
    }

    private func isEnforceable(_ participant: Participant) -> Bool {
        eligibility.manifest(of: participant.app)?.cleanup?.user.number == participant.user
    }

    /// When the next app is late, or is tried again.
    var nextDue: Duration? {
        let times = deadlines.values.map(\.due) + enforcement.failures.values.map(\.next)
        return times.filter { $0 > now.uptime }.min()
    }

    /// Notes who has become late, and has those looked at who wait for it.
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

    /// Why no cleanup is enforced although the policy wants it; `nil` if that is in order.
    var enforcementProblem: String? {
        guard policy.cleanup.deadline != nil, enforcement.programs.isEmpty else { return nil }
        return "no program enforces cleanups: an app that hangs keeps the device closed; run: systemctl status "
            + AppCleanup.enforcementUnit
    }

    /// What keeps cleanups from being enforced, each an app's identifier and a sentence about it.
    var enforcementProblems: [String] {
        guard policy.cleanup.deadline != nil else { return [] }
        let failed = enforcement.failures.map { "\($0.app) \($1.problem)" }
        let hopeless = ledger.debtors.filter { !isEnforceable($0) }.map {
            "\($0.app) has no manifest with “cleanup” for user \($0.user): it has to clean up by itself, or an administrator "
                + "waives the cleanup"
        }
        return (failed + hopeless).sorted()
    }

    // MARK: The program that enforces

    /// Whether the caller is the program that enforces. Where units tell services apart, it is root's.
    func checkEnforces(_ caller: Caller) throws(Refusal) {
        let isProgram =
            isService(caller, unit: AppCleanup.enforcementUnit) && (caller.user == 0 || !requiresProof)
        guard isProgram else { throw .notEnforcing }
    }

    /// Hands over who is late and not under way; with nobody, waits.
    ///
    /// - Returns: the answer; `nil` if the request waits, for somebody who is late or for the disk.
    mutating func overdue(_ request: Request, _ caller: Caller) throws(Refusal) -> BrokerProtocol.Fields? {
        guard case .overdue(let underWay, _) = request.call else { return [:] }
        try checkEnforces(caller)
        if enforcement.programs.insert(caller.connection).inserted { touch() }
        abandonQuestions(of: caller.connection)
        // It is at none of these: an answer, of this broker or of one before it, has not arrived. What is still due is handed over again.
        let released = claims(of: caller.connection).filter { !underWay.contains($0) }
        for participant in released { ledger.release(participant) }
        let answer = handOver(request, to: caller.connection)
        claimsEnded(released.filter { ledger.claims[$0] == nil })
        return answer
    }

    /// The program asks one question at a time: it has given the earlier ones up, and would not hear what they hand over.
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

    /// The apps' own processes were refused meanwhile, and the bus was not asked to start any.
    private mutating func claimsEnded(_ participants: [Participant]) {
        guard !participants.isEmpty else { return }
        for participant in participants where wakes[participant.app]?.isPostponed == true {
            wakes[participant.app]?.next = now.uptime
        }
        effects.append(.announce(modeChanged: false))
        needsDisk(within: .zero)
        touch()
    }

    /// Looks again for somebody who is late. What was under way when the request came may be reported by now.
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
            // On the disk first: a broker that starts anew has to wait for the report, too.
            wait(request, for: .stored(fields, nil))
            return nil
        }
        let deadline = request.askedAt + patience
        if deadline <= now.uptime { return fields }
        wait(request, until: deadline, for: .overdue)
        return nil
    }

    /// - Returns: those that were not claimed before.
    private mutating func claimOverdue(for connection: String) -> [(Participant, CleanupLedger.Claim)] {
        var claimed: [(Participant, CleanupLedger.Claim)] = []
        for (participant, overdue) in deadlines.sorted(by: { $0.key < $1.key })
        where overdue.due <= now.uptime && ledger.claims[participant] == nil
            && enforcement.failures[participant].map({ $0.next <= now.uptime }) ?? true
            && ledger.claims.count < Enforcement.mostClaims
        {
            let claim = CleanupLedger.Claim(connection: connection, sessions: overdue.sessions)
            ledger.claim(participant, claim)
            claimed.append((participant, claim))
            needsDisk(within: .zero)
            touch()
        }
        return claimed
    }

    /// Without the part that names the bus: the program is on the same one.
    private func connections(of participant: Participant, _ claim: CleanupLedger.Claim) -> DBusValue {
        // A broker of an earlier version has listed the program itself.
        let names = ledger.connections(of: participant, in: claim.sessions).subtracting([claim.connection])
            .compactMap { name in name.firstIndex(of: ":").map { String(name[$0...]) } }
        return .array(names.sorted().map { .string($0) }, of: "s")
    }

    /// Takes the program's report on one app: that it was stopped and its data deleted, or why not. It counts only from whom the app was handed to, for
    /// the sessions for which it was, and while no process is left that was given the account.
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
                pause: min(pause * 2, Self.longestPause)
            )
            ledger.release(participant)
            for session in claim.sessions.sorted() {
                enterRepeatable(.notEnforced, "enforcement", session, participant, detail: problem)
            }
            effects.append(.note(.error, "a cleanup could not be enforced", ["app": app, "reason": problem]))
        } else {
            let left = connections(of: participant, claim)
            if left.stringsValue?.isEmpty == false { return ["connections": left] }
            enforcement.failures[participant] = nil
            for session in ledger.enforce(participant, detail: detail, at: now) {
                noteSettled(.enforced, session, participant, detail: detail)
            }
        }
        claimsEnded([participant])
        wait(request, for: .stored([:], nil))
        return nil
    }

    /// The program has left the bus. What it was about is for its successor.
    mutating func enforcerLeft(_ connection: String) {
        let released = claims(of: connection)
        for participant in released { ledger.release(participant) }
        claimsEnded(released)
        guard enforcement.programs.remove(connection) != nil, let problem = enforcementProblem else { return }
        effects.append(.note(.error, "not enforced", ["reason": problem]))
    }

    /// An app that is being stopped gets no answer, and a late receipt of it does not count.
    func checkNotEnforced(_ participant: Participant) throws(Refusal) {
        guard ledger.claims[participant] == nil else { throw .isEnforced }
    }
}
