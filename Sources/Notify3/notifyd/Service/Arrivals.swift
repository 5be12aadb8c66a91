import DBusService

extension CallAmount {
    /// The limit for the waiting calls of one connection whose user is not known yet.
    static let ofStranger = CallAmount(calls: 8192, bytes: 2 << 20)
    /// The limit for the waiting calls of all these connections together.
    static let ofAllStrangers = CallAmount(calls: 32_768, bytes: 16 << 20)
}

/// Calls and departures of connections from their arrival until their turn. Pure.
///
/// 1. notifyd sorts them in the order of the bus. If the user of a caller is not known, everything later waits until
///    the bus has identified the caller. Otherwise a name that one process hands on to a new process would have no
///    registration in between, and would lose its state.
/// 2. After its start, notifyd carries out only reports, until all processes with earlier registrations have reported
///    or their time is over.
/// 3. The calls then have their turns at the ``ServiceFrontDesk``: a caller that never stops delays only itself.
struct Arrivals<Call> {
    /// The meaning of a call for the order.
    enum Kind {
        /// A list of all registrations of its sender. It replaces the sender's earlier calls about registrations.
        case report
        /// A change of the sender's registrations.
        case registration
        case other
    }

    enum Step {
        /// Ask the bus for the user of this connection, and continue after ``identified(_:)``.
        case identify(String)
        case call(Call, of: String)
        /// Too many calls of the caller's user wait.
        case refuse(Call)
        /// The caller is not known: it has disconnected, or the bus did not identify it.
        case refuseUnknown(Call)
        /// A later report has replaced the call.
        case superseded(Call)
        /// The connection's report was too large to keep while its user was not known.
        case askToReport(String)
        case departure(of: String)
    }

    private struct Arrival {
        enum Event {
            case call(Call, Kind)
            case report
            case departure
        }

        let event: Event
        let connection: String
        /// The size of a call's message.
        var bytes = 0
        /// The user whose quota the call uses; `nil` if it uses the quota of its connection.
        var user: UInt32?
    }

    /// The number of calls of one user that are carried out before it is another user's turn.
    static var lap: Int { 8 }

    /// The number of waiting calls and departures of one user from which on notifyd handles that user's next departure
    /// at once, out of order. A name that one process hands on to another may then lose its state.
    static var longestLine: Int { 16_384 }

    /// Arrivals that are not sorted yet.
    private var arrivals = Queue<Arrival>()
    /// Arrivals that wait until all processes have reported.
    private var held = Queue<Arrival>()
    /// Counts everything that waits, and keeps the calls of known users until their turn.
    private var desk = ServiceFrontDesk<Arrival>(lap: lap)
    private var superseded: [Call] = []
    /// The arrival whose connection notifyd has asked the bus about.
    private var asked: Arrival?
    /// Connections that have disconnected, or that the bus did not identify, until the turn of their departures. The
    /// bus is not asked about them again.
    private var unknown: Set<String> = []
    /// The connections that have not reported yet; `nil` until notifyd knows them.
    private var awaited: Set<String>?
    private var reported: Set<String> = []
    private(set) var isGathering = true

    // MARK: Events; next(now:user:limits:) follows each

    /// - Parameter user: the caller's user; `nil` if the bus has not been asked.
    mutating func called(_ call: Call, _ kind: Kind, bytes: Int = 0, by connection: String, user: UInt32? = nil) {
        let arrival = Arrival(event: .call(call, kind), connection: connection, bytes: bytes, user: user)
        begin(arrival)
        arrivals.append(arrival)
    }

    /// Asks a connection for its report again. It has sent one that is too large to wait while its user is not known.
    mutating func reportedTooMuch(_ connection: String) {
        arrivals.append(Arrival(event: .report, connection: connection))
    }

    mutating func departed(_ connection: String) {
        arrivals.append(Arrival(event: .departure, connection: connection))
        unknown.insert(connection)
        settle(connection)
    }

    /// Continues with the connection that ``Step/identify(_:)`` named, after the bus has responded.
    mutating func identified(_ connection: String) {
        guard let arrival = asked, arrival.connection == connection else { return }
        asked = nil
        arrivals.prepend(CollectionOfOne(arrival))
    }

    /// Refuses the calls of a connection at their turn, because the bus does not know it.
    mutating func failedToIdentify(_ connection: String) {
        unknown.insert(connection)
        identified(connection)
    }

    /// Waits for the reports of these connections, which had registrations when notifyd started.
    mutating func awaiting(_ connections: Set<String>) {
        awaited = connections.subtracting(reported)
        if awaited?.isEmpty == true { gathered() }
    }

    /// Ends the wait for reports. All connections have reported, or their time is over.
    mutating func gathered() {
        guard isGathering else { return }
        isGathering = false
        arrivals.prepend(held.remove { _ in true })
        reported = []
    }

    /// Ends the wait for one connection, which has reported or disconnected.
    private mutating func settle(_ connection: String) {
        guard isGathering else { return }
        reported.insert(connection)
        awaited?.remove(connection)
        if awaited?.isEmpty == true { gathered() }
    }

    // MARK: Quotas

    /// Whether a call of so many bytes may wait.
    func hasRoom(for bytes: Int, of connection: String, _ user: UInt32?, _ limit: CallAmount) -> Bool {
        desk.hasRoom(for: bytes, of: connection, user, within: limit, limitOfStrangers: .ofAllStrangers)
    }

    private mutating func begin(_ arrival: Arrival) {
        if case .call = arrival.event { desk.begin(arrival.bytes, of: arrival.connection, arrival.user) }
    }

    private mutating func end(_ arrival: Arrival) {
        if case .call = arrival.event { desk.end(arrival.bytes, of: arrival.connection, arrival.user) }
    }

    // MARK: Steps

    /// The time of the next possible step, `now` at the earliest; `nil` if nothing waits. Cheaper than
    /// ``next(now:user:limits:)``.
    func timeOfNext(now: ContinuousClock.Instant) -> ContinuousClock.Instant? {
        guard superseded.isEmpty, asked != nil || arrivals.isEmpty else { return now }
        return desk.queue.timeOfNext(now: now)
    }

    /// - Parameter user: the user of a connection; `nil` if the bus has not been asked.
    mutating func next(now: ContinuousClock.Instant, user: (String) -> UInt32?, limits: (UInt32) -> Limits) -> Step? {
        if let call = superseded.popLast() { return .superseded(call) }
        while asked == nil, let arrival = arrivals.popFirst() {
            if let step = sort(arrival, user(arrival.connection), now, limits) { return step }
        }
        guard let arrival = desk.queue.next(now: now, pace: { limits($0).pace }) else { return nil }
        end(arrival)
        return step(arrival)
    }

    private func step(_ arrival: Arrival) -> Step {
        switch arrival.event {
        case .call(let call, _): .call(call, of: arrival.connection)
        case .report: .askToReport(arrival.connection)
        case .departure: .departure(of: arrival.connection)
        }
    }

    /// Returns the step that must come first; `nil` if the arrival waits for its turn.
    private mutating func sort(
        _ arrival: Arrival,
        _ user: UInt32?,
        _ now: ContinuousClock.Instant,
        _ limits: (UInt32) -> Limits
    ) -> Step? {
        var arrival = arrival
        if case .departure = arrival.event {
            unknown.remove(arrival.connection)
            return enqueue(arrival, user, now, limits)
        }
        guard let user else {
            guard unknown.contains(arrival.connection) else {
                asked = arrival
                return .identify(arrival.connection)
            }
            end(arrival)
            if case .call(let call, _) = arrival.event { return .refuseUnknown(call) }
            return nil
        }
        if arrival.user == nil, case .call(let call, _) = arrival.event {
            end(arrival)
            arrival.user = user
            let limit = limits(user).waiting
            guard hasRoom(for: arrival.bytes, of: arrival.connection, user, limit) else { return .refuse(call) }
            begin(arrival)
        }
        guard isGathering, case .call(_, .report) = arrival.event else { return enqueue(arrival, user, now, limits) }
        withdrawRegistrations(of: arrival.connection)
        settle(arrival.connection)
        end(arrival)
        return step(arrival)
    }

    private mutating func enqueue(
        _ arrival: Arrival,
        _ user: UInt32?,
        _ now: ContinuousClock.Instant,
        _ limits: (UInt32) -> Limits
    ) -> Step? {
        if case .report = arrival.event { return step(arrival) }
        if isGathering {
            held.append(arrival)
        } else if let user {
            guard case .departure = arrival.event else {
                // The usual case: nothing else waits.
                let pace = limits(user).pace
                if arrivals.isEmpty, desk.queue.pass(of: user, now: now, pace: pace) {
                    end(arrival)
                    return step(arrival)
                }
                desk.queue.append(arrival, of: user, pace: pace)
                return nil
            }
            // A departure waits for the earlier calls of its user. Departures have no quota, so in a flood of
            // connections that come and go notifyd handles them at once.
            guard desk.queue.count(of: user) < Self.longestLine else { return step(arrival) }
            desk.queue.append(arrival, of: user, isFree: true, pace: limits(user).pace)
        } else {
            return step(arrival)
        }
        return nil
    }

    private mutating func withdrawRegistrations(of connection: String) {
        let withdrawn = held.remove { arrival in
            guard case .call(_, .registration) = arrival.event else { return false }
            return arrival.connection == connection
        }
        for arrival in withdrawn {
            end(arrival)
            if case .call(let call, _) = arrival.event { superseded.append(call) }
        }
    }
}
