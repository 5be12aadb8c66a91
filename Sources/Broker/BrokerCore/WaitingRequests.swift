/// A request that waits for a commit, a change, a response or a time.
struct WaitingRequest: Sendable {
    enum Reason: Sendable {
        /// The ledger entry that the app may hold data has to be committed before the app receives the account.
        case account(Participant)
        /// The same before the app receives a token.
        case token(Participant, Grant)
        /// A change has to be committed. The participant is the sender of a receipt.
        case stored(Response, Participant?)
        /// Open rounds delay a sign-in, or its beginning at a prompt.
        case signIn(Participant)
        /// The enforcement program waits for an app to become late.
        case overdue
        /// The round has to change.
        case round
        /// The device has to change.
        case status
        /// The content of the screen has to change.
        case screen(Participant)
        /// The log has to receive an entry after this number of writes.
        case log(writes: UInt64)
        /// polkit has to permit the request.
        case permission
        /// The users behind the operators' names are being looked up.
        case operators(Administration.Right)
        /// The log is being read. `writes` is the number of log writes at that time.
        case logRead(writes: UInt64)
        /// The device's own directory has to issue a token.
        case directoryToken(TokenRequest)
    }

    let request: Request
    /// The latest time for the response; `nil` if there is none.
    let until: Duration?
    let reason: Reason
    /// The change that has to be committed first.
    let change: UInt64
}

/// The waiting requests. Many may wait for the disk, and checking all at each event would be slow: so the numbers of
/// those that wait for the disk or for a change are kept apart.
struct WaitingRequests: Sendable {
    private var entries: [UInt64: WaitingRequest] = [:]
    private var onDisk: Set<UInt64> = []
    private var onChange: Set<UInt64> = []
    /// No request waits for an earlier change; `nil` if none waits for the disk.
    private var firstChange: UInt64?
    /// The earliest time at which a request has to get its response; `nil` if no request has a time.
    private(set) var deadline: Duration?

    subscript(number: UInt64) -> WaitingRequest? {
        get { entries[number] }
        set {
            let old = entries[number]
            guard old != nil || newValue != nil else { return }
            entries[number] = newValue
            onDisk.remove(number)
            onChange.remove(number)
            if let newValue {
                switch newValue.reason {
                case .account, .token, .stored:
                    onDisk.insert(number)
                    firstChange = min(firstChange ?? newValue.change, newValue.change)
                case .signIn, .overdue, .round, .status, .screen, .log: onChange.insert(number)
                case .permission, .operators, .logRead, .directoryToken: break
                }
            }
            if onDisk.isEmpty { firstChange = nil }
            if let until = old?.until, until == deadline { deadline = entries.values.compactMap(\.until).min() }
            if let until = newValue?.until { deadline = min(deadline ?? until, until) }
        }
    }

    var isStatusAwaited: Bool {
        onChange.contains { if case .status? = entries[$0]?.reason { true } else { false } }
    }

    /// The requests for which the condition holds, in the order of their numbers.
    func filter(_ condition: (WaitingRequest) -> Bool) -> [WaitingRequest] {
        entries.values.filter(condition).sorted { $0.request.number < $1.request.number }
    }

    func count(where condition: (WaitingRequest) -> Bool) -> Int { entries.values.count(where: condition) }

    /// Removes the requests for which the condition holds, and returns them in the order of their numbers.
    mutating func remove(where condition: (WaitingRequest) -> Bool) -> [WaitingRequest] {
        let removed = filter(condition)
        for entry in removed { self[entry.request.number] = nil }
        return removed
    }

    /// The numbers of the requests that may have a response now, in ascending order.
    mutating func due(hasChanged: Bool, _ disk: Facts.Disk, at now: Duration) -> [UInt64] {
        let isLate = deadline.map { $0 <= now } ?? false
        guard isLate || hasChanged else { return [] }
        let hasAnswer = hasChanged && (disk.problem != nil || firstChange.map { $0 <= disk.committed } ?? false)
        let isDue = { [entries] (number: UInt64) in entries[number]?.until.map { $0 <= now } ?? false }
        var due = onChange.filter { hasChanged || isDue($0) }
        if isLate || hasAnswer { due.formUnion(onDisk.filter { hasAnswer || isDue($0) }) }
        // The requests returned here are removed. If one continues to wait, its change is taken into account again.
        if hasAnswer { firstChange = nil }
        return due.sorted()
    }
}
