/// Calls and departures in the order of the bus, one after the other. Pure.
///
/// Where notifyd does not know yet who calls, everything that comes later waits for the bus's answer; otherwise a name that one process hands
/// on to a new one would have no registration in between, and would lose its state. After its start, notifyd carries out nothing but reports,
/// until all processes that had registrations before have reported or their time is over.
struct Arrivals<Call> {
    /// What a call means for the order.
    enum Kind {
        /// It has all that its sender has, so it takes the place of what its sender said of its registrations before.
        case report
        /// It says something of its sender's registrations.
        case registration
        case other
    }

    enum Step {
        /// Ask the bus who this is, and go on after ``identified(_:)``.
        case identify(String)
        case call(Call, of: String)
        /// The caller's user has too many calls that wait.
        case refuse(Call)
        /// Nobody knows who the caller is: it is gone, or the bus did not say.
        case refuseUnknown(Call)
        /// There is no need to carry it out.
        case superseded(Call)
        case departure(of: String)
    }

    private enum Arrival {
        case call(Call, Kind, of: String)
        case departure(of: String)
    }

    /// What has not been looked at, and from where on.
    private var arrivals: [Arrival] = []
    private var head = 0
    /// What waits until all have reported, and how many calls of each user that is.
    private var held: [Arrival] = []
    private var heldCalls: [UInt32: Int] = [:]
    private var superseded: [Call] = []
    private var asked: String?
    /// Connections that are gone, or of which the bus did not say who they are, until their departures have their turn. The bus is not asked
    /// about them again.
    private var unknown: Set<String> = []
    /// Those that have not reported; `nil` until notifyd knows who that is.
    private var awaited: Set<String>?
    private var reported: Set<String> = []
    private(set) var isGathering = true

    // MARK: Events; next(user:limit:) follows each

    mutating func called(_ call: Call, _ kind: Kind, by connection: String) {
        arrivals.append(.call(call, kind, of: connection))
    }

    mutating func departed(_ connection: String) {
        arrivals.append(.departure(of: connection))
        unknown.insert(connection)
        settle(connection)
    }

    /// The bus has said who the connection is.
    mutating func identified(_ connection: String) { if asked == connection { asked = nil } }

    /// The bus does not know the connection: its calls are refused when their turn comes.
    mutating func failedToIdentify(_ connection: String) {
        unknown.insert(connection)
        identified(connection)
    }

    /// These connections had registrations when notifyd started.
    mutating func awaiting(_ connections: Set<String>) {
        awaited = connections.subtracting(reported)
        if awaited?.isEmpty == true { gathered() }
    }

    /// All have reported, or their time is over.
    mutating func gathered() {
        guard isGathering else { return }
        isGathering = false
        arrivals = held + arrivals[head...]
        (head, held, heldCalls, reported) = (0, [], [:], [])
    }

    /// A connection has reported, or is gone.
    private mutating func settle(_ connection: String) {
        guard isGathering else { return }
        reported.insert(connection)
        awaited?.remove(connection)
        if awaited?.isEmpty == true { gathered() }
    }

    // MARK: What to do

    /// - Parameters:
    ///   - user: the user of a connection; `nil` where the bus has not been asked.
    ///   - limit: how many calls of a user may wait until all have reported.
    mutating func next(user: (String) -> UInt32?, limit: (UInt32) -> Int) -> Step? {
        if let call = superseded.popLast() { return .superseded(call) }
        while asked == nil, let arrival = take() {
            switch arrival {
            case .departure(let connection):
                unknown.remove(connection)
                if !isGathering { return .departure(of: connection) }
                held.append(arrival)
            case .call(let call, let kind, let connection):
                guard let user = user(connection) else {
                    if unknown.contains(connection) { return .refuseUnknown(call) }
                    head -= 1
                    asked = connection
                    return .identify(connection)
                }
                if isGathering, kind == .report {
                    withdrawRegistrations(of: connection, user)
                    settle(connection)
                } else if isGathering {
                    guard heldCalls[user] ?? 0 < limit(user) else { return .refuse(call) }
                    heldCalls[user, default: 0] += 1
                    held.append(arrival)
                    continue
                }
                return .call(call, of: connection)
            }
        }
        return nil
    }

    private mutating func take() -> Arrival? {
        guard head < arrivals.count else {
            arrivals.removeAll(keepingCapacity: head < 4096)
            head = 0
            return nil
        }
        // What was carried out is not kept until the queue is empty, which a user can put off.
        if head >= 64, head * 2 >= arrivals.count {
            arrivals.removeFirst(head)
            head = 0
        }
        defer { head += 1 }
        return arrivals[head]
    }

    private mutating func withdrawRegistrations(of connection: String, _ user: UInt32) {
        held.removeAll { arrival in
            guard case .call(let call, .registration, connection) = arrival else { return false }
            superseded.append(call)
            return true
        }
        heldCalls[user, default: 0] -= superseded.count
    }
}
