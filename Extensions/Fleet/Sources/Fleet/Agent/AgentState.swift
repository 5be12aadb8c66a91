import Cryptography

/// The state machine of a device's agent: takes events and returns effects. It carries out orders at least once, and a
/// finished order never again, even if the server repeats, loses or reorders messages.
package struct AgentState: Sendable {
    package struct Policy: Sendable, Hashable {
        /// The valid range of `contactTimeout`, in seconds: up to a year.
        static let timeouts = 60.0...31_536_000

        /// The seconds without a heartbeat after which the device signs out.
        package var contactTimeout: Double?
        /// Whether a session needs contact with the controller from its start, instead of getting the full timeout.
        package var requiresContact = false

        package init(contactTimeout: Double? = nil, requiresContact: Bool = false) {
            (self.contactTimeout, self.requiresContact) = (contactTimeout, requiresContact)
        }
    }

    enum Cause: Hashable {
        case order(OrderScope, FleetOrder)
        /// A session that had ended is open again.
        case again
        case noContact(UInt64)
    }

    /// The kinds of problems. The report has the newest of each kind.
    enum Problem: Int, Hashable {
        case broker, refused, failed, unstored, disk, foreign, noContact, certificate
    }

    /// The shortest interval between reports, in seconds.
    static let reportInterval = 1.0
    /// The shortest interval between subscriptions that a heartbeat causes.
    static let subscriptionInterval = 10.0
    /// The wait after the broker has refused or failed a sign-out.
    static let retryInterval = 5.0
    /// The wait before checking whether a sign-out is on the broker's disk.
    static let storeInterval = 1.0
    /// The wait after the server has rejected a report.
    static let refusalInterval = 60.0
    /// How many sequence numbers are reserved with one write to the disk, so that most reports need no write.
    static let sequenceBlock: UInt64 = 1 << 20

    let policy: Policy
    var memory: AgentMemory
    var sequence: UInt64
    var isConnected = false
    /// `nil` while the broker does not respond, and until it has responded to the last request.
    var view: DeviceView?
    /// Whether a response of the broker is pending. A report then might have the state before a sign-out.
    var isAsking = true
    /// The pending orders, the highest of each scope.
    var orders: [OrderScope: FleetOrder] = [:]
    var underWay: Cause?
    var retryAt: Double?
    /// Whether to ask the broker at ``retryAt``.
    var mustAsk = false
    var isWaitingForDisk = false
    var problems: [Problem: String] = [:]
    var foreignCount: UInt64 = 0
    var isClockSynchronised = false
    /// When the certificate ends, in seconds since 1970.
    var certificateEnd: Result<Double, CertificateFileError>?
    var lastReport: (content: DeviceReport, uptime: Double)?
    var isReportDue = false
    var subscribedAt: Double?
    /// When to repeat the state to a server that rejected it.
    var sayAgainAt: Double?
    var effects: [AgentEffect] = []

    /// - Parameter memory: the stored memory, or a new one if there is none.
    package init(policy: Policy, memory: AgentMemory, now: Moment) {
        self.policy = policy
        self.memory = memory
        if memory.policy ?? Policy() != policy {
            self.memory.policy = policy
            effects = [.store(self.memory)]
        }
        sequence = max(memory.sequenceLimit, Self.sequence(by: now.wall))
    }

    /// The sequence number for a time of the wall clock. After the loss of the agent's file the numbers continue above
    /// the old ones, because no device sends a million reports a second.
    static func sequence(by wall: Double) -> UInt64 { UInt64(min(max(wall, 0), 0x1p32)) * sequenceBlock }

    package mutating func handle(_ event: AgentEvent, now: Moment) -> [AgentEffect] {
        switch event {
        case .connected:
            isConnected = true
            followClock(now)
            subscribedAt = now.uptime
            isReportDue = true
            sayAgainAt = nil
            effects += [.subscribe, .publishPresence]
        case .disconnected: isConnected = false
        case .desired(let scope, let order): take(order, scope)
        case .heartbeat(let highest): hear(highest, now)
        case .refused: sayAgainAt = sayAgainAt ?? now.uptime + Self.refusalInterval
        case .foreign(let text):
            foreignCount += 1
            problems[.foreign] = "\(foreignCount) messages were not understood; the last message: \(text)"
        case .device(let view): take(view, now)
        case .deviceUnknown(let reason):
            (view, isAsking) = (nil, false)
            problems[.broker] = reason
        case .signOutAnswered(let answer): finish(answer, now)
        case .stored(let problem): problems[.disk] = problem
        case .clockSynchronised(let isSynchronised):
            if isSynchronised, !isClockSynchronised { followClock(now) }
            isClockSynchronised = isSynchronised
        case .certificate(let end): certificateEnd = end
        case .tick: break
        }
        if mustAsk, let retryAt, now.uptime >= retryAt {
            mustAsk = false
            ask()
        }
        if let time = sayAgainAt, isConnected, now.uptime >= time {
            sayAgainAt = nil
            isReportDue = true
            effects.append(.publishPresence)
        }
        lookAtCertificate(now)
        advance(now)
        report(now)
        defer { effects = [] }
        return effects
    }

    /// The uptime at which the agent needs a ``AgentEvent/tick``; `nil` if it waits for no time.
    package func wake(now: Moment) -> Double? {
        var times: [Double] = []
        if isReportDue, isConnected, !isAsking, let lastReport { times.append(lastReport.uptime + Self.reportInterval) }
        if let retryAt { times.append(retryAt) }
        if let sayAgainAt, isConnected { times.append(sayAgainAt) }
        if let left = secondsLeft(now) { times.append(now.uptime + left) }
        return times.min()
    }

    // MARK: Events

    private mutating func take(_ order: FleetOrder, _ scope: OrderScope) {
        // An order that was carried out is reported, or is about to be. The controller repeats an order for all devices
        // when one device has missed it, which must not make the whole fleet report.
        guard order.number > memory.seen[scope], order.number > orders[scope]?.number ?? 0 else { return }
        orders[scope] = order
        // A user may have signed in since the broker's last response.
        ask()
    }

    mutating func ask() {
        (view, isAsking) = (nil, true)
        effects.append(.askDevice)
    }

    private mutating func hear(_ highest: UInt64, _ now: Moment) {
        // Stores the contact only now and then, to spare flash memory.
        let step = (policy.contactTimeout ?? .infinity) / 10
        let isOld = memory.contact.map { $0.seconds(now) >= step || $0.begin.boot != now.boot } ?? true
        problems[.noContact] = nil
        heard = Stopwatch(begin: now)
        if isOld {
            memory.contact = heard
            effects.append(.store(memory))
        }
        let isKnown = max(memory.seen.all, orders[.all]?.number ?? 0) >= highest
        let mayAsk = subscribedAt.map { now.uptime - $0 >= Self.subscriptionInterval } ?? true
        if !isKnown, mayAsk {
            subscribedAt = now.uptime
            effects.append(.subscribe)
        }
    }

    /// When the controller was last heard in this run of the agent.
    var heard: Stopwatch?

    private mutating func take(_ new: DeviceView, _ now: Moment) {
        problems[.broker] = nil
        (view, isAsking) = (new, false)
        let session = new.isSignedIn ? new.epoch : nil
        guard session != memory.session?.epoch else { return }
        memory.session = session.map { AgentMemory.Session(epoch: $0, since: Stopwatch(begin: now)) }
        // Without a time limit the beginning of the session does not matter.
        if policy.contactTimeout != nil { effects.append(.store(memory)) }
    }

    // MARK: Reports

    /// Raises the sequence number to that of the clock: the agent may have started with a slow clock and without its
    /// old file, and the controller ignores numbers below the known ones.
    private mutating func followClock(_ now: Moment) { sequence = max(sequence, Self.sequence(by: now.wall)) }

    private mutating func lookAtCertificate(_ now: Moment) {
        let words = ("the certificate", "enrol the device again")
        let problem = CertificateTerm.warning(certificateEnd, words, now: now.wall)
        guard problem != problems[.certificate] else { return }
        problems[.certificate] = problem
        if let problem { effects.append(.note(problem)) }
    }

    private mutating func report(_ now: Moment) {
        var content = DeviceReport()
        content.seen = memory.seen
        content.result = memory.result
        content.contactTimeout = policy.contactTimeout.map { UInt64($0) }
        content.isClockSynchronised = isClockSynchronised
        content.certificateEnd = try? certificateEnd?.get()
        content.problems = problems.sorted { $0.key.rawValue < $1.key.rawValue }.prefix(DeviceReport.mostProblems)
            .map { String($0.value.prefix(DeviceReport.longestText)) }
        // Without a view the report has no rounds and proves no cleanup.
        if let view {
            content.mode = view.mode
            content.session = view.isSignedIn ? view.epoch : nil
            content.rounds = view.rounds
        }
        if content != lastReport?.content { isReportDue = true }
        guard isReportDue, isConnected, !isAsking,
            now.uptime >= (lastReport?.uptime ?? -.infinity) + Self.reportInterval
        else { return }
        isReportDue = false
        lastReport = (content, now.uptime)
        sequence += 1
        if sequence > memory.sequenceLimit {
            memory.sequenceLimit = sequence + Self.sequenceBlock
            effects.append(.store(memory))
        }
        content.sequence = sequence
        effects.append(.publish(content.fitted()))
    }
}

// Orders and the device's own time limit: which session the agent ends, and when.

extension AgentState {
    /// Carries out pending orders as far as possible.
    mutating func advance(_ now: Moment) {
        if let retryAt, now.uptime >= retryAt { self.retryAt = nil }
        count(now)
        guard underWay == nil, retryAt == nil else { return }
        for scope in OrderScope.allCases {
            guard let order = orders[scope], let view else { continue }
            guard order.number > memory.seen[scope] else {
                orders[scope] = nil
                continue
            }
            let begun = memory.intents[scope].flatMap { $0.order == order.number ? $0.session : nil }
            let newest = min(order.session ?? .max, begun ?? .max)
            if view.isSignedIn, view.epoch <= newest {
                // Stores the session first: after a crash another user may be signed in.
                memory.intents[scope] = AgentMemory.Intent(order: order.number, session: view.epoch)
                effects.append(.store(memory))
                begin(.order(scope, order), view.epoch, reason: Self.words(order))
                return
            }
            guard view.isStored else { return waitForDisk(now) }
            if view.isSignedIn {
                conclude(order, scope, begun == nil ? .sessionOver : .signedOut, ended: view.epoch - 1)
            } else {
                conclude(order, scope, begun == nil ? .nobody : .signedOut, ended: view.epoch)
            }
        }
        endAgain()
        if let left = secondsLeft(now), left <= 0, let view { endForWantOfContact(view.epoch, now) }
    }

    /// Waits for the broker's disk: a power cut would reopen the session. The order does not count as carried out yet.
    private mutating func waitForDisk(_ now: Moment) {
        // At the first check the broker may still be writing.
        if isWaitingForDisk {
            problems[.unstored] = "the broker's disk does not have the sign-out yet; free some space on the device"
        }
        isWaitingForDisk = true
        retryAt = now.uptime + Self.storeInterval
        mustAsk = true
    }

    /// Ends a session again that was reopened, because it was not on the broker's disk at a power cut.
    private mutating func endAgain() {
        guard underWay == nil, let view, view.isSignedIn, view.epoch <= max(memory.result?.ended ?? 0, memory.ended)
        else { return }
        let text = "session \(view.epoch) is open again, which was over"
        effects.append(.note(text))
        begin(.again, view.epoch, reason: text)
    }

    private mutating func endForWantOfContact(_ session: UInt64, _ now: Moment) {
        let seconds = watches.map { $0.seconds(now) }.min() ?? .infinity
        let text =
            watches.contains { $0.isInDoubt(now) }
            ? "no contact since the machine was started, with a wrong clock"
            : seconds.isFinite ? "no contact for \(Int(min(seconds, 1e12).rounded())) s" : "no contact so far"
        problems[.noContact] = text
        effects.append(.note("\(text): session \(session) is signed out"))
        begin(.noContact(session), session, reason: text)
    }

    private static func words(_ order: FleetOrder) -> String {
        "fleet order \(order.number)" + (order.reason.isEmpty ? "" : ": \(order.reason)")
    }

    private mutating func begin(_ cause: Cause, _ session: UInt64, reason: String) {
        underWay = cause
        effects.append(.signOut(session: session, reason: reason))
    }

    /// Concludes an order, which counts as seen from here on.
    private mutating func conclude(
        _ order: FleetOrder,
        _ scope: OrderScope,
        _ outcome: DeviceReport.Outcome,
        ended: UInt64
    ) {
        // A newer order may have arrived in the meantime.
        if orders[scope]?.number == order.number { orders[scope] = nil }
        memory.intents[scope] = nil
        memory.seen[scope] = order.number
        let last = memory.result
        let isNewest = order.number >= last?.order ?? 0
        memory.result = DeviceReport.Result(
            order: max(order.number, last?.order ?? 0),
            outcome: isNewest ? outcome : last?.outcome ?? outcome,
            ended: max(ended, last?.ended ?? 0)
        )
        for problem in [Problem.refused, .failed, .unstored] { problems[problem] = nil }
        isWaitingForDisk = false
        effects += [.store(memory), .note("order \(order.number): \(outcome.rawValue)")]
    }

    /// Handles the broker's response to a sign-out.
    mutating func finish(_ answer: AgentEvent.SignOutAnswer, _ now: Moment) {
        guard let cause = underWay else { return }
        underWay = nil
        if case .noContact(let session) = cause, [.ended, .endedUnstored].contains(answer) {
            memory.ended = max(memory.ended, session)
            effects.append(.store(memory))
        }
        switch answer {
        case .ended:
            if case .order(let scope, let order) = cause, let session = memory.intents[scope]?.session {
                conclude(order, scope, .signedOut, ended: session)
            }
            ask()
        case .overAlready, .endedUnstored:
            // The next view tells whether another user is signed in and whether the disk has the sign-out.
            ask()
        case .refused(let text):
            problems[.refused] = text
            if case .order(_, let order) = cause, order.number > memory.result?.order ?? 0 {
                let ended = memory.result?.ended ?? 0
                memory.result = DeviceReport.Result(order: order.number, outcome: .refused, ended: ended)
            }
            retryAt = now.uptime + Self.retryInterval
        case .failed(let text):
            problems[.failed] = text
            retryAt = now.uptime + Self.retryInterval
            ask()
        }
    }

    // MARK: The limit without contact

    /// The times of the last contact. The later one counts: the stored one may be from an earlier run.
    private var watches: [Stopwatch] { [heard, memory.contact].compactMap { $0 } }

    /// The seconds until the device ends the open session; `nil` if there is no limit.
    func secondsLeft(_ now: Moment) -> Double? {
        guard let timeout = policy.contactTimeout, underWay == nil, retryAt == nil, let view, view.isSignedIn,
            let session = memory.session
        else { return nil }
        let left = watches.map { $0.left(of: timeout, now) }.max() ?? -.infinity
        // The timeout of a session that began without contact counts from its start, unless contact is required.
        return policy.requiresContact ? left : max(left, session.since.left(of: timeout, now))
    }

    /// Without contact, saves the uptime regularly, so that a restart of the machine does not reset a limit.
    private mutating func count(_ now: Moment) {
        guard policy.contactTimeout != nil, memory.session != nil,
            heard.map({ $0.seconds(now) >= 2 * ControllerState.heartbeatInterval }) ?? true
        else { return }
        let hasNews = [memory.contact?.count(now), memory.session?.since.count(now)]
        if hasNews.contains(true) { effects.append(.store(memory)) }
    }
}
