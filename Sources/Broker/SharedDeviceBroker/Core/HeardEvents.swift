import Identity

/// What the provider has told of sessions while somebody is signing in. Whom it concerns is known when the sign-in's person is: until then it is kept.
/// Pure: the caller brings the time.
struct HeardEvents: Sendable {
    /// How much is kept: an organisation whose stream tells of everybody is not to fill the memory.
    static let (capacity, byteCapacity) = (1000, 256 << 10)

    /// When each was heard last.
    private var arrivals: [ProviderEvent: Duration] = [:]
    private(set) var bytes = 0
    /// When something was heard last for which there is no room any more.
    private var lost: Duration?

    var count: Int { arrivals.count }
    var isEmpty: Bool { arrivals.isEmpty && lost == nil }

    /// Keeps an event.
    ///
    /// - Parameter began: when the first sign-in that is under way has begun. What was heard before concerns none of them.
    mutating func add(_ event: ProviderEvent, at now: Duration, since began: Duration) {
        if arrivals[event] != nil {
            arrivals[event] = now
            return
        }
        let size = event.size
        if isFull(with: size) { forget(before: began) }
        // The oldest goes: who has begun to sign in since misses nothing of theirs.
        while isFull(with: size) {
            guard let oldest = arrivals.min(by: { $0.value < $1.value }) else {
                lost = now
                return
            }
            arrivals[oldest.key] = nil
            bytes -= oldest.key.size
            lost = max(lost ?? oldest.value, oldest.value)
        }
        arrivals[event] = now
        bytes += size
    }

    private func isFull(with size: Int) -> Bool { arrivals.count >= Self.capacity || bytes + size > Self.byteCapacity }

    private mutating func forget(before began: Duration) {
        arrivals = arrivals.filter { $0.value >= began }
        bytes = arrivals.keys.reduce(0) { $0 + $1.size }
        if let lost, lost < began { self.lost = nil }
    }

    /// What was heard of this sign-in since it began, in its order.
    func about(_ record: ProviderRecord, since began: Duration) -> [ProviderEvent] {
        arrivals.filter { $0.value >= began && $0.key.mayConcern(record) }.sorted { $0.value < $1.value }.map(\.key)
    }

    /// Whether all that was heard since then was kept.
    func isComplete(since began: Duration) -> Bool { lost.map { $0 < began } ?? true }
}

extension ProviderEvent {
    /// A doubt need not say whom it is about.
    fileprivate func mayConcern(_ record: ProviderRecord) -> Bool {
        guard kind == .doubt else { return concerns(record) }
        return issuer == record.person.issuer && (subject == nil || subject == record.person.subject)
    }

    /// In bytes, of what is of another process's length.
    fileprivate var size: Int {
        issuer.utf8.count + (subject?.utf8.count ?? 0) + (session?.utf8.count ?? 0) + MemoryLayout<ProviderEvent>.size
    }
}
