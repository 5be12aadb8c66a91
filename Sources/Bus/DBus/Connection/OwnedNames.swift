/// The bus names that a connection owns or has requested. Pure.
///
/// Requests and releases are decided under the connection's lock and sent after it, so the bus may process them in
/// another order. Their numbers tell which came last.
struct OwnedNames {
    struct Request: Sendable {
        let name: String
        let options: BusNameOptions
        fileprivate let number: UInt64
    }

    /// Pending requests for a name.
    private struct UnderWay {
        var count = 0
        /// The number of the latest request.
        var last: UInt64 = 0
        /// The number of the latest release since the first pending request.
        var released: UInt64 = 0
    }

    /// Names that are requested again after an outage.
    private(set) var owned: [String: BusNameOptions] = [:]
    private var underWay: [String: UnderWay] = [:]
    private var lastNumber: UInt64 = 0

    mutating func request(_ name: String, _ options: BusNameOptions) -> Request {
        lastNumber += 1
        underWay[name, default: UnderWay()].count += 1
        underWay[name]?.last = lastNumber
        return Request(name: name, options: options, number: lastNumber)
    }

    mutating func requestAll() -> [Request] { owned.map { request($0.key, $0.value) } }

    /// Requests a name after its second release, if it is owned by now.
    mutating func requestAgain(_ name: String) -> Request? { owned[name].map { request(name, $0) } }

    mutating func release(_ name: String) {
        owned[name] = nil
        lastNumber += 1
        underWay[name]?.released = lastNumber
    }

    /// Ends a request.
    ///
    /// - Parameter isOwned: whether the bus gave the name to this connection, or queued it for the name.
    /// - Returns: whether the release must be sent to the bus again.
    mutating func answered(_ request: Request, isOwned: Bool) -> Bool {
        guard var others = underWay[request.name] else { return false }
        others.count -= 1
        underWay[request.name] = others.count > 0 ? others : nil
        guard isOwned else { return false }
        // The response to a later request decides.
        if others.released > request.number { return others.last == request.number }
        owned[request.name] = request.options
        return false
    }
}
