/// A request that waits for a commit, a change or a time.
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
    }

    let request: Request
    /// The latest time for the response; `nil` means that only the commit counts.
    let until: Duration?
    let reason: Reason
    /// The change that has to be committed first.
    let change: UInt64
}

/// The waiting requests. Many of them may wait for the disk, and checking these at each event would be slow. So the
/// requests that wait for the disk are stored separately, with the first change that any of them waits for.
struct WaitingRequests: Sendable {
    private var onDisk: [UInt64: WaitingRequest] = [:]
    private var others: [UInt64: WaitingRequest] = [:]
    /// No request waits for an earlier change; `nil` if none waits for the disk.
    private var firstChange: UInt64?
    /// The earliest time at which a request has to get its response; `nil` if no request has a time.
    private(set) var deadline: Duration?

    subscript(number: UInt64) -> WaitingRequest? {
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

    var requests: [WaitingRequest] { [onDisk, others].flatMap(\.values) }

    var isStatusAwaited: Bool { others.values.contains { if case .status = $0.reason { true } else { false } } }

    /// Removes the requests for which the condition holds, and returns them in the order of their numbers.
    mutating func remove(where condition: (WaitingRequest) -> Bool) -> [WaitingRequest] {
        let removed = requests.filter(condition).sorted { $0.request.number < $1.request.number }
        for entry in removed { self[entry.request.number] = nil }
        return removed
    }

    /// The numbers of the requests that may have a response now, in ascending order.
    mutating func due(hasChanged: Bool, _ disk: Facts.Disk, at now: Duration) -> [UInt64] {
        let isLate = deadline.map { $0 <= now } ?? false
        let hasAnswer = hasChanged && (disk.problem != nil || firstChange.map { $0 <= disk.committed } ?? false)
        let isDue = { (entry: WaitingRequest) in entry.until.map { $0 <= now } ?? false }
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

extension WaitingRequest.Reason {
    fileprivate var isOfDisk: Bool {
        switch self {
        case .account, .token, .stored: true
        case .signIn, .overdue, .round, .status, .screen, .log: false
        }
    }
}
