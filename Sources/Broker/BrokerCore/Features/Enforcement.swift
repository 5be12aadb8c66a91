import Basics
import DeviceConfiguration
import Logging
@_spi(Extensions) import SharedDevice

/// Hands over late apps to enforcement programs, which stop them and delete their data.
///
/// An app is handed over once its deadline has passed, unless a person is signed in. Until the program reports, sign-in
/// is blocked and the app's own calls are refused. The app's own reports do not move the deadline.
struct Enforcement: Sendable {
    private struct Failure: Sendable {
        let problem: String
        /// When the app is handed over again.
        let next: Duration
        let pauses: Backoff
    }

    private typealias Claims = [Participant: CleanupLedger.Claim]

    private var failures: [Participant: Failure] = [:]
    /// The connections of the enforcement programs.
    private var programs: Set<String> = []
    /// The apps that were late at the last check. Each is logged once.
    private var late: Set<Participant> = []

    static let firstPause = Duration.seconds(5)

    // MARK: Late apps

    /// The apps that owe an enforceable cleanup, with their deadlines. Empty during a session or a sign-in: the present
    /// user's data would be deleted too.
    private func deadlines(_ facts: Facts) -> [Participant: CleanupLedger.Overdue] {
        guard let deadline = facts.policy.cleanup.deadline, isPossible(facts) else { return [:] }
        return facts.ledger.deadlines(deadline, at: facts.now).filter { isEnforceable($0.key, facts) }
    }

    /// A time before which no app is late; `nil` if none can be. It is found without a search of the apps.
    private func firstDeadline(_ facts: Facts) -> Duration? {
        guard let deadline = facts.policy.cleanup.deadline, isPossible(facts) else { return nil }
        return facts.ledger.firstEnd(at: facts.now).map { $0 + deadline }
    }

    private func isPossible(_ facts: Facts) -> Bool { facts.device.account == nil && facts.pending == nil }

    private func isEnforceable(_ participant: Participant, _ facts: Facts) -> Bool {
        facts.eligibility.manifest(of: participant.app)?.cleanup?.user.number == participant.user
    }

    /// When the next app becomes late or is tried again.
    func next(_ facts: Facts) -> Duration? {
        guard let first = firstDeadline(facts) else { return nil }
        if first > facts.now.uptime { return first }
        let times = deadlines(facts).values.map(\.due) + failures.values.map(\.next)
        return times.filter { $0 > facts.now.uptime }.min()
    }

    mutating func passTime(_ facts: Facts) -> [Decision] {
        guard let first = firstDeadline(facts), first <= facts.now.uptime else {
            (late, failures) = ([], [:])
            return []
        }
        let deadlines = deadlines(facts)
        let late = Set(deadlines.filter { $0.value.due <= facts.now.uptime }.keys)
        var decisions: [Decision] = late.isEmpty ? [] : [.checkWaiting]
        for participant in late.subtracting(self.late).sorted() {
            let details = ["app": participant.app, "user": "\(participant.user)"]
            decisions.append(.note(.warning, "the deadline of a cleanup has passed", details))
            if let problem = problem(facts) { decisions.append(.note(.error, "not enforced", ["reason": problem])) }
        }
        self.late = late
        failures = failures.filter { deadlines[$0.key] != nil }
        return decisions
    }

    /// Why the policy's enforcement cannot take place; `nil` if there is no problem.
    func problem(_ facts: Facts) -> String? {
        guard facts.policy.cleanup.deadline != nil, programs.isEmpty else { return nil }
        return "no program enforces cleanups: an app that hangs keeps the device closed; run: systemctl status "
            + AppCleanup.enforcementUnit
    }

    /// The problems of single apps: for each, its identifier and a sentence.
    func problems(_ facts: Facts) -> [String] {
        guard facts.policy.cleanup.deadline != nil else { return [] }
        let failed = failures.map { "\($0.app) \($1.problem)" }
        let hopeless = facts.ledger.debtors.filter { !isEnforceable($0, facts) }.map {
            "\($0.app) has no manifest with “cleanup” for user \($0.user): it has to clean up by itself, or an administrator "
                + "waives the cleanup"
        }
        return (failed + hopeless).sorted()
    }

    // MARK: The enforcement program

    /// Where services are told apart by their units, the enforcement program has to run as root.
    private func checkEnforces(_ caller: Caller?, _ facts: Facts) throws(Refusal) {
        guard let caller else { throw .requestAbandoned }
        let isProgram =
            facts.isService(caller, unit: AppCleanup.enforcementUnit) && (caller.user == 0 || !facts.requiresProof)
        guard isProgram else { throw .notEnforcing }
    }

    /// Hands over the late apps that are not claimed yet. If there are none, the request waits.
    mutating func overdue(_ request: Request, _ caller: Caller, _ facts: Facts) throws(Refusal) -> [Decision] {
        guard case .overdue(let underWay, _) = request.call else { return [] }
        try checkEnforces(caller, facts)
        // The program sends one request at a time. It has given up the earlier one, and would not receive the apps that
        // this hands over.
        let earlier = facts.waiting.filter { entry in
            if case .overdue = entry.request.call { entry.request.connection == caller.connection } else { false }
        }
        let first = programs.insert(caller.connection).inserted ? [Decision.touch] : []
        // The program is not working on these: the response with them was lost. They are handed over again if still
        // late.
        let released = claims(of: caller.connection, facts).filter { !underWay.contains($0) }
        let new = newClaims(for: caller.connection, besides: released, facts)
        return first + earlier.map { .abandon($0.request.number) } + [.release(released.filter { new[$0] == nil })]
            + new.map { .claim($0, $1) } + [answer(request, new, facts)]
    }

    /// Apps that the program was working on when the request came may have been reported by now.
    func checkAgain(_ request: Request, _ facts: Facts) throws(Refusal) -> [Decision] {
        try checkEnforces(facts.connected[request.connection]?.caller, facts)
        let new = newClaims(for: request.connection, besides: [], facts)
        return new.map { .claim($0, $1) } + [answer(request, new, facts)]
    }

    private func claims(of connection: String, _ facts: Facts) -> [Participant] {
        facts.ledger.claims.filter { $0.value.connection == connection }.keys.sorted()
    }

    private func newClaims(for connection: String, besides released: [Participant], _ facts: Facts) -> Claims {
        let claims = facts.ledger.claims.filter { !released.contains($0.key) }
        let due = deadlines(facts).filter { participant, overdue in
            overdue.due <= facts.now.uptime && claims[participant] == nil
                && failures[participant].map { $0.next <= facts.now.uptime } ?? true
        }
        let next = due.sorted { $0.key < $1.key }.prefix(max(0, OverdueApp.most - claims.count))
        return next.reduce(into: [:]) {
            $0[$1.key] = CleanupLedger.Claim(connection: connection, sessions: $1.value.sessions)
        }
    }

    private func answer(_ request: Request, _ claims: Claims, _ facts: Facts) -> Decision {
        guard case .overdue(_, let patience) = request.call else { return .respond(request.number, .done) }
        let apps = claims.sorted { $0.key < $1.key }.map { participant, claim in
            OverdueApp(
                participant: participant,
                sessions: claim.sessions.sorted(),
                connections: connections(of: participant, claim, facts)
            )
        }
        // The claims are committed first, so that a restarted broker also waits for the reports.
        guard claims.isEmpty else { return .wait(request, for: .stored(.overdue(apps), nil)) }
        let deadline = request.askedAt + patience
        return deadline > facts.now.uptime
            ? .wait(request, until: deadline, for: .overdue) : .respond(request.number, .overdue([]))
    }

    /// The names without the part that identifies the bus, because the program is on the same bus.
    private func connections(of participant: Participant, _ claim: CleanupLedger.Claim, _ facts: Facts) -> [String] {
        // The program itself is in the list if a broker of an earlier version stored it.
        facts.ledger.connections(of: participant, in: claim.sessions).subtracting([claim.connection])
            .compactMap { name in name.firstIndex(of: ":").map { String(name[$0...]) } }.sorted()
    }

    /// A report counts only from the program that has the claim, for the claim's sessions, and while no process is left
    /// that was given the account.
    mutating func report(_ request: Request, _ caller: Caller, _ facts: Facts) throws(Refusal) -> [Decision] {
        guard case .enforced(let app, let user, let sessions, let detail, let problem) = request.call else { return [] }
        try checkEnforces(caller, facts)
        let participant = Participant(app: app, user: user)
        guard let claim = facts.ledger.claims[participant], claim.connection == caller.connection,
            claim.sessions == sessions
        else { throw .notHandedOver }
        let end: [Decision] = [.release([participant]), .wait(request, for: .stored(.done, nil))]
        if let problem {
            var pauses = failures[participant]?.pauses ?? Backoff(first: Self.firstPause, longest: Facts.longestPause)
            let next = facts.now.uptime + pauses.next()
            failures[participant] = Failure(problem: problem, next: next, pauses: pauses)
            let details = ["app": app, "reason": problem]
            return sessions.sorted().map {
                .logRepeatable(.notEnforced, "enforcement", session: $0, participant, detail: problem)
            } + [.note(.error, "a cleanup could not be enforced", details)] + end
        }
        let left = connections(of: participant, claim, facts)
        guard left.isEmpty else { return [.respond(request.number, .stillConnected(left))] }
        failures[participant] = nil
        return [.enforced(participant, detail: detail)] + end
    }

    /// Releases the claims of a program that has left the bus, so that its successor can take them.
    mutating func leave(_ connection: String, _ facts: Facts) -> [Decision] {
        let decisions = [Decision.release(claims(of: connection, facts))]
        guard programs.remove(connection) != nil, let problem = problem(facts) else { return decisions }
        return decisions + [.note(.error, "not enforced", ["reason": problem])]
    }
}
