/// The bus names of a connection: those that it owns, and those that are asked for. Pure.
///
/// Requests and releases are decided under the connection's lock and sent after it, so that the bus may take them in another order. Numbers tell
/// which came last.
struct OwnedNames {
    struct Request: Sendable {
        let name: String
        let options: BusNameOptions
        fileprivate let number: UInt64
    }

    /// Requests of a name whose answers are missing.
    private struct UnderWay {
        var count = 0
        /// The number of the last one.
        var last: UInt64 = 0
        /// The number of a release since the first one.
        var released: UInt64 = 0
    }

    /// What is asked for again after an outage.
    private(set) var owned: [String: BusNameOptions] = [:]
    private var underWay: [String: UnderWay] = [:]
    private var lastNumber: UInt64 = 0

    mutating func request(_ name: String, _ options: BusNameOptions) -> Request {
        lastNumber += 1
        underWay[name, default: UnderWay()].count += 1
        underWay[name]?.last = lastNumber
        return Request(name: name, options: options, number: lastNumber)
    }

    /// For a new connection.
    mutating func requestAll() -> [Request] { owned.map { request($0.key, $0.value) } }

    /// For a name that was released once more, if it is owned by now.
    mutating func requestAgain(_ name: String) -> Request? { owned[name].map { request(name, $0) } }

    mutating func release(_ name: String) {
        owned[name] = nil
        lastNumber += 1
        underWay[name]?.released = lastNumber
    }

    /// - Parameter isOwned: whether the bus has given the name to this connection, or put it into the queue for it.
    /// - Returns: whether the bus has to be told once more that the name was given back.
    mutating func answered(_ request: Request, isOwned: Bool) -> Bool {
        guard var others = underWay[request.name] else { return false }
        others.count -= 1
        underWay[request.name] = others.count > 0 ? others : nil
        guard isOwned else { return false }
        // A later request's answer decides.
        if others.released > request.number { return others.last == request.number }
        owned[request.name] = request.options
        return false
    }
}
