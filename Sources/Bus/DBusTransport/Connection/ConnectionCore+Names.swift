import Synchronization

/// How a bus name is asked for.
public struct BusNameOptions: OptionSet, Sendable {
    public let rawValue: UInt32

    /// The options with these bits of the D-Bus specification.
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    /// Another connection may take the name over.
    public static let allowReplacement = BusNameOptions(rawValue: 1)
    /// Takes the name over from an owner that allows it.
    public static let replaceExisting = BusNameOptions(rawValue: 2)
    /// Fails at once instead of waiting in the queue for the name. Without it, the request succeeds by queueing.
    public static let doNotQueue = BusNameOptions(rawValue: 4)
}

extension ConnectionCore {
    func requestName(_ name: String, _ options: BusNameOptions, waiter: @escaping RuleWaiter) {
        let attempted = "own the bus name \(name)"
        start(BusDaemon.call("RequestName", [.string(name), .uint32(options.rawValue)]), attempted: attempted) {
            result in
            switch result {
            case .failure(let error): waiter(error)
            // 1 owner, 2 queued, 3 exists, 4 owned already (D-Bus specification, RequestName).
            case .success(let reply) where [1, 2, 4].contains(reply.first?.unsignedValue):
                // Here, on the reading thread: a loss that comes next must find the name among those to restore.
                self.state.withLock { $0.names[name] = options }
                waiter(nil)
            case .success:
                let error = DBusError(
                    .nameTaken,
                    message: "another connection owns it",
                    attempted: attempted,
                    remedy: "end the program that owns it, or use another bus"
                )
                waiter(error)
            }
        }
    }
}
