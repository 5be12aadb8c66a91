import DBus
import DeviceConfiguration
import FoundationEssentials
@_spi(Extensions) import SharedDevice

/// Requests that wait for a commit, a change or a time.
extension BrokerState {
    struct Waiting: Sendable {
        enum Reason: Sendable {
            /// The ledger entry that the app may hold data has to be committed before the app receives the account.
            case account(Participant)
            /// The same before the app receives a token.
            case token(Participant, Grant)
            /// A change has to be committed.
            case stored(BrokerProtocol.Fields, Participant?)
            /// Open rounds delay a sign-in, or its beginning at a prompt.
            case signIn(Participant)
            /// The enforcement program waits for an app to become late.
            case overdue
            /// The round has to change.
            case round
            /// The device has to change.
            case status
            /// The log has to receive an entry after this number of writes.
            case log(writes: UInt64)
        }

        let request: Request
        /// The latest time for the response; `nil` means that only the commit counts.
        let until: Duration?
        let reason: Reason
        /// The change that has to be committed first.
        let change: UInt64
    }

    /// Checks the waiting requests whose condition may have changed or whose time is over.
    mutating func answerWaiting() {
        let hasChanged = isTouched
        isTouched = false
        for number in waiting.due(hasChanged: hasChanged, disk, at: now.uptime) {
            guard let entry = waiting[number] else { continue }
            waiting[number] = nil
            respond(to: entry.request) { state throws(Refusal) in try state.resume(entry) }
        }
    }

    /// - Returns: The response; `nil` if the request continues to wait.
    private mutating func resume(_ entry: Waiting) throws(Refusal) -> BrokerProtocol.Fields? {
        let request = entry.request
        let isLate = entry.until.map { $0 <= now.uptime } ?? false
        let isStored = disk.committed >= entry.change
        switch entry.reason {
        case .account(let participant) where isStored:
            try facts.checkIdentity(request, participant)
            return try currentAccount(request, participant)
        case .token(let participant, let grant) where isStored: return try handOver(request, participant, grant)
        case .stored(let fields, let participant) where isStored: return confirmation(of: request, fields, participant)
        case .stored(let fields, _)
        where request.call.isSignOut && (isLate || disk.problem != nil && disk.writing == nil):
            // The device is signed out. The response tells the caller that this is not committed yet.
            return confirmation(of: request, fields, nil).merging(["stored": .boolean(false)]) { $1 }
        case .account, .token, .stored:
            // A sign-out has already happened, and its commit is tried even on a failing disk. Its response reports the
            // result.
            if let problem = disk.problem, !request.call.isSignOut { throw .failed(problem) }
            waiting[request.number] = entry
            return nil
        case .signIn(let participant):
            try startSignIn(request, participant)
            return nil
        case .overdue:
            apply(try enforcement.checkAgain(request, facts))
            return nil
        case .round: return round(request)
        case .status: return status(request)
        case .log where isLate: return Administration.fields(of: [])
        case .log(let writes) where writes == disk.logWrites:
            waiting[request.number] = entry
            return nil
        case .log:
            apply(try administration.readLog(request, facts))
            return nil
        }
    }

    /// The response to a request whose change is committed. It includes what the app would ask for next: the round
    /// after a sign-out, and the session's state after a receipt if no account is signed in.
    ///
    /// An account is not included. The app has to request it separately, so that the ledger records that the app has
    /// it.
    private func confirmation(
        of request: Request,
        _ fields: BrokerProtocol.Fields,
        _ participant: Participant?
    ) -> BrokerProtocol.Fields {
        if request.call.isSignOut, let session = fields["session"]?.unsignedValue {
            return fields.merging(roundFields(of: session)) { $1 }
        }
        // If a receipt does not count, its sender has to ask for what it owes. By asking it enters the ledger, which
        // then waits for it.
        guard case .report = request.call, let participant, device.account == nil, fields.isEmpty else { return fields }
        return sessionFields(nil, owing: ledger.owed(by: participant, on: request.connection))
    }

    /// - Parameter change: The change that has to be committed first; `nil` means all changes up to now.
    mutating func wait(_ request: Request, until: Duration? = nil, for reason: Waiting.Reason, change: UInt64? = nil) {
        let change = change ?? disk.changes
        waiting[request.number] = Waiting(request: request, until: until, reason: reason, change: change)
        if case .stored = reason { urge() }
    }
}

/// The waiting requests. Many of them may wait for the disk, and checking these at each event would be slow. So the
/// requests that wait for the disk are stored separately, with the first change that any of them waits for.
struct WaitingRequests: Sendable {
    private var onDisk: [UInt64: BrokerState.Waiting] = [:]
    private var others: [UInt64: BrokerState.Waiting] = [:]
    /// No request waits for an earlier change; `nil` if none waits for the disk.
    private var firstChange: UInt64?
    /// The earliest time at which a request has to get its response; `nil` if no request has a time.
    private(set) var deadline: Duration?

    subscript(number: UInt64) -> BrokerState.Waiting? {
        get { onDisk[number] ?? others[number] }
        set {
            let old = onDisk.removeValue(forKey: number) ?? others.removeValue(forKey: number)
            if let newValue {
                if newValue.reason.isOfDisk {
                    onDisk[number] = newValue
                    firstChange = min(firstChange ?? newValue.change, newValue.change)
                } else {
                    others[number] = newValue
                }
            }
            if onDisk.isEmpty { firstChange = nil }
            if let until = old?.until, until == deadline { deadline = requests.compactMap(\.until).min() }
            if let until = newValue?.until { deadline = min(deadline ?? until, until) }
        }
    }

    var requests: [BrokerState.Waiting] { [onDisk, others].flatMap(\.values) }

    /// Removes the requests for which the condition holds, and returns them in the order of their numbers.
    mutating func remove(where condition: (BrokerState.Waiting) -> Bool) -> [BrokerState.Waiting] {
        let removed = requests.filter(condition).sorted { $0.request.number < $1.request.number }
        for entry in removed { self[entry.request.number] = nil }
        return removed
    }

    /// The numbers of the requests that may have a response now, in ascending order.
    mutating func due(hasChanged: Bool, _ disk: Facts.Disk, at now: Duration) -> [UInt64] {
        let isLate = deadline.map { $0 <= now } ?? false
        let hasAnswer = hasChanged && (disk.problem != nil || firstChange.map { $0 <= disk.committed } ?? false)
        let isDue = { (entry: BrokerState.Waiting) in entry.until.map { $0 <= now } ?? false }
        var due: [UInt64] = []
        if isLate || hasAnswer {
            for (number, entry) in onDisk where hasAnswer || isDue(entry) { due.append(number) }
            // The requests returned here are removed. If one continues to wait, its change is taken into account again.
            if hasAnswer { firstChange = nil }
        }
        if isLate || hasChanged {
            for (number, entry) in others where hasChanged || isDue(entry) { due.append(number) }
        }
        return due.sorted()
    }
}

extension BrokerState.Waiting.Reason {
    fileprivate var isOfDisk: Bool {
        switch self {
        case .account, .token, .stored: true
        case .signIn, .overdue, .round, .status, .log: false
        }
    }
}
