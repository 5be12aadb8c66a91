import DBusTransport
import DeviceConfiguration
import FoundationEssentials
import SharedDevice

/// Requests that wait for the disk, for a round or for a time.
extension BrokerState {
    /// A request that waits.
    struct Waiting: Sendable {
        enum Reason: Sendable {
            /// The disk has to have it that the app may hold data, before the app gets the account.
            case account(Participant)
            /// The same for a token.
            case token(Participant, Grant)
            /// A change has to be on the disk.
            case stored(BrokerProtocol.Fields, Participant?)
            /// Open rounds hold up a sign-in, or its beginning at a prompt.
            case signIn(Participant)
            /// Somebody is to be late.
            case overdue
            /// The round is to change.
            case round
            /// The device is to change.
            case status
            /// The log is to have more entries on the disk than after so many writes.
            case log(writes: UInt64)
        }

        let request: Request
        /// When the request is answered at the latest; `nil` means that the disk decides.
        let until: Duration?
        let reason: Reason
        /// What the disk has to have first.
        let change: UInt64
    }

    /// Looks at every request that waits, where something that it waits for has changed or its time is over.
    mutating func answerWaiting() {
        let hasChanged = isTouched
        isTouched = false
        for number in waiting.due(hasChanged: hasChanged, disk, at: now.uptime) {
            guard let entry = waiting[number] else { continue }
            waiting[number] = nil
            do throws(Refusal) {
                if let fields = try resume(entry) { reply(number, fields) }
            } catch {
                refuse(entry.request, error)
            }
        }
    }

    /// - Returns: the answer; `nil` if the request waits on.
    private mutating func resume(_ entry: Waiting) throws(Refusal) -> BrokerProtocol.Fields? {
        let request = entry.request
        let isLate = entry.until.map { $0 <= now.uptime } ?? false
        let isStored = disk.committed >= entry.change
        switch entry.reason {
        case .account(let participant) where isStored:
            try checkIdentity(request, participant)
            return try currentAccount(request, participant)
        case .token(let participant, let grant) where isStored: return try handOver(request, participant, grant)
        case .stored(let fields, let participant) where isStored: return confirmation(of: request, fields, participant)
        case .stored(let fields, _)
        where request.call.isSignOut && (isLate || disk.problem != nil && disk.writing == nil):
            // The device is signed out; whoever asks may know that the disk does not have it yet.
            return confirmation(of: request, fields, nil).merging(["stored": .boolean(false)]) { $1 }
        case .account, .token, .stored:
            // A sign-out has happened, and is tried on a disk that fails as well: its answer says what became of that.
            if let problem = disk.problem, !request.call.isSignOut { throw .failed(problem) }
            waiting[request.number] = entry
            return nil
        case .signIn(let participant):
            if case .beginSignIn = request.call { return try beginSignIn(request, participant) }
            return try signIn(request, participant)
        case .overdue:
            guard let caller = connected[request.connection]?.caller else { throw .requestAbandoned }
            try checkEnforces(caller)
            return handOver(request, to: request.connection)
        case .round: return round(request)
        case .status: return status(request)
        case .log where isLate: return Self.logFields([])
        case .log(let writes) where writes == disk.logWrites:
            waiting[request.number] = entry
            return nil
        case .log: return try readLog(request)
        }
    }

    /// The answer to a request whose change is on the disk. It says what its app would ask next: the round after a sign-out, and after a
    /// receipt who is signed in, while that is nobody. An account needs a question of its own, which records that the app has it.
    private func confirmation(
        of request: Request,
        _ fields: BrokerProtocol.Fields,
        _ participant: Participant?
    ) -> BrokerProtocol.Fields {
        if request.call.isSignOut, let session = fields["session"]?.unsignedValue {
            return fields.merging(roundFields(of: session)) { $1 }
        }
        // Where a receipt does not count, its sender has to ask: that has the ledger wait for it.
        guard case .report = request.call, let participant, device.account == nil, fields.isEmpty else { return fields }
        return sessionFields(nil, owing: ledger.owed(by: participant, on: request.connection))
    }

    /// - Parameter change: what the disk has to have first; `nil` means all changes up to now.
    mutating func wait(_ request: Request, until: Duration? = nil, for reason: Waiting.Reason, change: UInt64? = nil) {
        let change = change ?? disk.changes
        waiting[request.number] = Waiting(request: request, until: until, reason: reason, change: change)
        if case .stored = reason { urge() }
    }
}

/// The requests that wait. Those that wait for the disk may be many, and each event would look at all of them: they are apart, with what the
/// first of them waits for.
struct WaitingRequests: Sendable {
    private var onDisk: [UInt64: BrokerState.Waiting] = [:]
    private var others: [UInt64: BrokerState.Waiting] = [:]
    /// No request waits for an earlier change; `nil` where none waits for the disk.
    private var firstChange: UInt64?
    /// When the first of all has to be answered; `nil`: nobody waits for a time.
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

    /// The numbers of those that satisfy the condition, in their order.
    func numbers(where condition: (BrokerState.Waiting) -> Bool) -> [UInt64] {
        [onDisk, others].flatMap { $0.filter { condition($0.value) }.keys }.sorted()
    }

    /// The numbers of those that may have an answer now, in their order.
    mutating func due(hasChanged: Bool, _ disk: BrokerState.Disk, at now: Duration) -> [UInt64] {
        let isLate = deadline.map { $0 <= now } ?? false
        let hasAnswer = hasChanged && (disk.problem != nil || firstChange.map { $0 <= disk.committed } ?? false)
        let isDue = { (entry: BrokerState.Waiting) in entry.until.map { $0 <= now } ?? false }
        var due: [UInt64] = []
        if isLate || hasAnswer {
            for (number, entry) in onDisk where hasAnswer || isDue(entry) { due.append(number) }
            // What is taken out now comes back with its change where it waits on.
            if hasAnswer { firstChange = nil }
        }
        if isLate || hasChanged {
            for (number, entry) in others where hasChanged || isDue(entry) { due.append(number) }
        }
        return due.sorted()
    }
}

extension BrokerState.Waiting.Reason {
    /// Whether the disk decides.
    fileprivate var isOfDisk: Bool {
        switch self {
        case .account, .token, .stored: true
        case .signIn, .overdue, .round, .status, .log: false
        }
    }
}
