import Identity

/// Buffers provider events about sessions during a sign-in, until it is known who signs in.
struct HeardEvents: Sendable {
    /// The limits of the buffer: an organisation's stream may report on all of its users.
    static let (capacity, byteCapacity) = (1000, 256 << 10)

    /// When each event was last received.
    private var arrivals: [ProviderEvent: Duration] = [:]
    private(set) var bytes = 0
    /// When the latest event that the buffer lost was last received.
    private var lost: Duration?

    var count: Int { arrivals.count }
    var isEmpty: Bool { arrivals.isEmpty && lost == nil }

    /// - Parameter began: When the oldest sign-in in progress began. Earlier events concern none of them.
    mutating func add(_ event: ProviderEvent, at now: Duration, since began: Duration) {
        if arrivals[event] != nil {
            arrivals[event] = now
            return
        }
        let size = event.size
        if isFull(with: size) { forget(before: began) }
        // Drops the oldest events. A sign-in that began after them loses nothing.
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

    /// The events that may concern this sign-in since it began, in order of arrival.
    func about(_ record: ProviderRecord, since began: Duration) -> [ProviderEvent] {
        arrivals.filter { $0.value >= began && $0.key.mayConcern(record) }.sorted { $0.value < $1.value }.map(\.key)
    }

    /// Whether no event since then was lost.
    func isComplete(since began: Duration) -> Bool { lost.map { $0 < began } ?? true }
}

extension ProviderEvent {
    /// A doubt may name only the issuer. It then concerns all of the issuer's sessions.
    fileprivate func mayConcern(_ record: ProviderRecord) -> Bool {
        guard kind == .doubt else { return concerns(record) }
        return issuer == record.person.issuer && (subject == nil || subject == record.person.subject)
    }

    /// The size in bytes, including the strings that another process chose.
    fileprivate var size: Int {
        issuer.utf8.count + (subject?.utf8.count ?? 0) + (session?.utf8.count ?? 0) + MemoryLayout<ProviderEvent>.size
    }
}
