/// A device's agent, as a value: events in, effects out. It carries out orders at least once and never twice, whatever the server repeats,
/// forgets or brings in another order.
package struct AgentState: Sendable {
    /// What the device's administrator has decided.
    package struct Policy: Sendable, Hashable {
        /// What `contactTimeout` may be, in seconds: up to a year.
        static let timeouts = 60.0...31_536_000

        /// After so many seconds without a heartbeat the device signs out.
        package var contactTimeout: Double?
        /// Whether nobody stays signed in until the controller is heard of again.
        package var requiresContact = false

        package init(contactTimeout: Double? = nil, requiresContact: Bool = false) {
            self.contactTimeout = contactTimeout
            self.requiresContact = requiresContact
        }
    }

    /// Why a sign-out is under way.
    enum Cause: Hashable {
        case order(OrderScope, FleetOrder)
        /// A session that was ended before is open again.
        case again
        case noContact(UInt64)
    }

    /// What keeps the agent from its work; the newest of each kind is told.
    enum Problem: Int, Hashable {
        case broker, refused, failed, unstored, disk, foreign, noContact, certificate
    }

    /// The least time between two reports, in seconds.
    static let reportInterval = 1.0
    /// The least time between two subscriptions that a heartbeat causes.
    static let subscriptionInterval = 10.0
    /// How long the agent waits after the broker has refused a sign-out, or has failed.
    static let retryInterval = 5.0
    /// How long it waits before it looks whether the broker's disk has a sign-out.
    static let storeInterval = 1.0
    /// How long the agent waits after the server has refused to take what it says.
    static let refusalInterval = 60.0
    /// How many numbers of reports are taken at once, so that not each report is stored.
    static let sequenceBlock: UInt64 = 1 << 20

    let policy: Policy
    var memory: AgentMemory
    var sequence: UInt64
    var isConnected = false
    /// `nil` while the broker does not answer, and until it has answered the last question.
    var view: DeviceView?
    /// Whether an answer of the broker's is to come. Until then nothing is reported: what the agent knows may be from before a sign-out.
    var isAsking = true
    /// Orders that are not carried out, the highest of each scope.
    var orders: [OrderScope: FleetOrder] = [:]
    var underWay: Cause?
    var retryAt: Double?
    /// Whether the broker is asked at that time.
    var mustAsk = false
    var isWaitingForDisk = false
    var problems: [Problem: String] = [:]
    var foreignCount: UInt64 = 0
    var isClockSynchronised = false
    /// When the certificate ends, in seconds since 1970.
    var certificateEnd: Double?
    var lastReport: (content: DeviceReport, uptime: Double)?
    var isReportDue = false
    var subscribedAt: Double?
    /// When the server, which refused it, is told again how the device is.
    var sayAgainAt: Double?
    var effects: [AgentEffect] = []

    /// An agent that starts.
    ///
    /// - Parameter memory: what the disk has; a new one where it has nothing.
    package init(policy: Policy, memory: AgentMemory, now: Moment) {
        self.policy = policy
        self.memory = memory
        if memory.policy ?? Policy() != policy {
            self.memory.policy = policy
            effects = [.store(self.memory)]
        }
        sequence = max(memory.sequenceLimit, Self.sequence(by: now.wall))
    }

    /// The number of a report by the clock. Also where the disk was lost, the numbers go on: nobody sends a million reports a second.
    static func sequence(by wall: Double) -> UInt64 { UInt64(min(max(wall, 0), 0x1p32)) * sequenceBlock }

    /// What the agent does about an event.
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
            problems[.foreign] = "\(foreignCount) messages meant nothing; the last one: \(text)"
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

    /// When the agent wants a ``AgentEvent/tick``, by the uptime; `nil` where nothing waits for time.
    package func wake(now: Moment) -> Double? {
        var times: [Double] = []
        if isReportDue, isConnected, !isAsking, let lastReport { times.append(lastReport.uptime + Self.reportInterval) }
        if let retryAt { times.append(retryAt) }
        if let sayAgainAt, isConnected { times.append(sayAgainAt) }
        if let left = secondsLeft(now) { times.append(now.uptime + left) }
        return times.min()
    }

    // MARK: What it hears

    private mutating func take(_ order: FleetOrder, _ scope: OrderScope) {
        // Carried out before: a report on this connection has said so, or will. An order that is published again for one device that was away must not
        // have a whole fleet report.
        guard order.number > memory.seen[scope], order.number > orders[scope]?.number ?? 0 else { return }
        orders[scope] = order
        // Somebody may have signed in since the broker last answered.
        ask()
    }

    mutating func ask() {
        (view, isAsking) = (nil, true)
        effects.append(.askDevice)
    }

    private mutating func hear(_ highest: UInt64, _ now: Moment) {
        // Stored now and then: a flash memory does not bear each minute.
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

    /// When the controller was last heard of in this run of the agent.
    var heard: Stopwatch?

    private mutating func take(_ new: DeviceView, _ now: Moment) {
        problems[.broker] = nil
        (view, isAsking) = (new, false)
        let session = new.isSignedIn ? new.epoch : nil
        guard session != memory.session?.epoch else { return }
        memory.session = session.map { AgentMemory.Session(epoch: $0, since: Stopwatch(begin: now)) }
        // Without a limit of time nobody asks later when it began.
        if policy.contactTimeout != nil { effects.append(.store(memory)) }
    }

    // MARK: Reports

    /// The agent may have started with a clock that was behind, and without its old file. Below the numbers that the controller knows of this device, none
    /// of its reports would count.
    private mutating func followClock(_ now: Moment) { sequence = max(sequence, Self.sequence(by: now.wall)) }

    /// Warns in good time: once it has ended, the server hears no report any more.
    private mutating func lookAtCertificate(_ now: Moment) {
        let problem = certificateEnd.flatMap { end in
            CertificateTerm.isNear(end, now: now.wall)
                ? "the certificate \(CertificateTerm.words(end, now: now.wall)); enrol the device again" : nil
        }
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
        content.certificateEnd = certificateEnd
        content.problems = problems.sorted { $0.key.rawValue < $1.key.rawValue }.prefix(DeviceReport.mostProblems)
            .map { String($0.value.prefix(DeviceReport.longestText)) }
        // Without a view it says nothing of rounds, and so proves nothing.
        if let view {
            content.mode = view.mode
            content.session = view.isSignedIn ? view.epoch : nil
            content.rounds = view.rounds
        }
        if content != lastReport?.content { isReportDue = true }
        guard isReportDue, isConnected, !isAsking,
            now.uptime >= (lastReport?.uptime ?? -.infinity) + Self.reportInterval
        else {
            return
        }
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
