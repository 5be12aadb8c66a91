public import NotifyCenter

extension DistributedNotificationCenter {
    /// Posts a message to the observers of its type in all processes (CF-X10), like the messages of Foundation's
    /// proposal SF-0011.
    ///
    /// ```swift
    /// struct OrderPlaced: DistributedNotificationCenter.AsyncMessage {
    ///     static let name = Notification.Name("com.example.order-placed")
    ///     var total: Double
    /// }
    /// try center.post(OrderPlaced(total: 12.5), subject: "till-3")
    /// ```
    ///
    /// The properties are sent as the userInfo of a notification with the type's name: a property list of at most 1 MiB
    /// (CF-U9). The call waits like ``post(name:object:userInfo:)``.
    ///
    /// - Parameters:
    ///   - message: a value whose `Codable` form has named values, such as a struct with properties.
    ///   - subject: the subject of the message; with `nil`, only observers of any subject receive it (CF-P2).
    ///   - options: the options of ``postNotificationName(_:object:userInfo:options:)``.
    /// - Throws: `EncodingError` for a message that cannot be encoded, that encodes as a single value or an array, or
    ///   that contains the text `$null` where the type has no `nil`: this text stands for `nil` in a property list.
    ///   ``PropertyListError`` for a message that is nested too deep. `DBusError` for a message that is too large, and
    ///   if the bus cannot be reached.
    public func post<M: Message>(_ message: M, subject: String? = nil, options: Options = []) throws {
        try center.post(
            NotificationName(M.name),
            object: subject,
            userInfo: try MessageCoding.encode(message),
            options: options
        )
    }

    /// Calls `observer` on the main actor for each message of a type, one after the other and in the order of arrival.
    /// This ends when the returned token is freed or `removeObserver(_:)` gets it. Keep the token.
    ///
    /// ```swift
    /// token = try center.addObserver(of: "till-3", for: OrderPlaced.self) { message in total += message.total }
    /// ```
    ///
    /// The registration is in force on return (CF-A11); the function blocks until the bus has responded, for at most 25
    /// seconds. For a slow observer the newest 4096 messages wait, at most 16 MiB of them;
    /// ``ObservationToken/droppedCount`` counts the dropped ones. A notification of the name that does not decode as a
    /// message is not delivered, and ``undecodableMessageCount`` counts it. While the center is suspended, the
    /// registration coalesces (CF-S4).
    ///
    /// - Parameters:
    ///   - subject: the subject; `nil` for any.
    ///   - messageType: the type.
    ///   - observer: called with each message.
    /// - Throws: `DBusError` if the bus cannot be reached or refuses the registration.
    public func addObserver<M: MainActorMessage>(
        of subject: String? = nil,
        for messageType: M.Type,
        using observer: @escaping @MainActor (M) -> Void
    ) throws(DBusError) -> ObservationToken {
        let observation = try center.observe(
            NotificationName(M.name),
            object: subject,
            delivery: .main
        ) { [undecodable] notification in
            guard let message = Self.message(M.self, notification, undecodable: undecodable) else { return }
            MainActor.assumeIsolated { observer(message) }
        }
        return ObservationToken(droppedCount: { observation.counts.dropped }, remove: { observation.cancel() })
    }

    /// Calls `observer` for each message of a type, on no actor. The next call begins when the previous call has
    /// returned. Otherwise it works as for a ``MainActorMessage``.
    ///
    /// - Throws: `DBusError` if the bus cannot be reached or refuses the registration.
    public func addObserver<M: AsyncMessage>(
        of subject: String? = nil,
        for messageType: M.Type,
        using observer: @escaping @Sendable (M) async -> Void
    ) throws(DBusError) -> ObservationToken {
        let sequence = try center.blockingNotifications(named: NotificationName(M.name), object: subject)
        Task { [undecodable] in
            for await notification in sequence {
                guard let message = Self.message(M.self, notification, undecodable: undecodable) else { continue }
                await observer(message)
            }
        }
        return ObservationToken(droppedCount: { sequence.counts.dropped }, remove: { sequence.cancel() })
    }

    /// Removes an observer of messages. Idempotent. After the return no call begins, with one exception: a thread that
    /// has already taken its notification still makes its call (CF-R7).
    public func removeObserver(_ token: ObservationToken) { token.remove() }

    /// Returns the messages of a type as a sequence. The registration is in force on return: messages posted before the
    /// loop begins wait for it. The function blocks until the bus has responded, for at most 25 seconds.
    ///
    /// ```swift
    /// for await message in try center.messages(for: OrderPlaced.self) { … }
    /// ```
    ///
    /// Elements come in the order of arrival. The loop ends when its task is cancelled. Otherwise the sequence works
    /// like an observer.
    ///
    /// - Parameters:
    ///   - subject: the subject; `nil` for any.
    ///   - messageType: the type.
    ///   - bufferSize: how many messages wait while the loop is busy, at least 1. Older ones are dropped, and
    ///     ``Messages/droppedCount`` counts them.
    /// - Throws: `DBusError` if the bus cannot be reached or refuses the registration.
    public func messages<M: AsyncMessage>(
        of subject: String? = nil,
        for messageType: M.Type,
        bufferSize: Int = 10
    ) throws(DBusError) -> Messages<M> {
        let sequence = try center.blockingNotifications(
            named: NotificationName(M.name),
            object: subject,
            buffering: .bufferingNewest(bufferSize)
        )
        return Messages(base: sequence, undecodable: undecodable)
    }

    /// The number of notifications that reached an observer of messages, or a loop over them, and did not decode as a
    /// message of its type. A notification counts once for each of these observers and loops; none of them gets it.
    public var undecodableMessageCount: UInt64 { undecodable.value }
}

// MARK: Tokens

extension DistributedNotificationCenter {
    /// A registered observer of messages. `removeObserver(_:)` removes it, and so does this token's deinit.
    public final class ObservationToken: Hashable, Sendable {
        private let dropped: @Sendable () -> UInt64
        private let end: @Sendable () -> Void

        init(droppedCount: @escaping @Sendable () -> UInt64, remove: @escaping @Sendable () -> Void) {
            dropped = droppedCount
            end = remove
        }

        deinit { end() }

        /// The number of messages that were dropped for newer ones because the observer was busy.
        public var droppedCount: UInt64 { dropped() }

        func remove() { end() }

        /// Whether both are the same token.
        public static func == (left: ObservationToken, right: ObservationToken) -> Bool { left === right }

        /// Hashes the identity.
        public func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }
    }
}

// MARK: Sequences

extension DistributedNotificationCenter {
    /// A sequence of messages as they arrive. It is for one loop at a time: two loops over the same sequence share its
    /// elements.
    ///
    /// The observer is removed with the last copy and the last iterator.
    public struct Messages<M: AsyncMessage>: AsyncSequence, Sendable {
        let base: NotificationSequence<DistributedNotification>
        let undecodable: Counter

        /// The number of messages that were dropped for newer ones because the loop was busy.
        public var droppedCount: UInt64 { base.counts.dropped }

        /// Creates an iterator, which keeps the observer in place.
        public func makeAsyncIterator() -> Iterator {
            Iterator(base: base.makeAsyncIterator(), undecodable: undecodable)
        }

        /// An iterator that waits for one message after the other.
        public struct Iterator: AsyncIteratorProtocol {
            fileprivate var base: NotificationSequence<DistributedNotification>.Iterator
            fileprivate let undecodable: Counter

            /// Returns the next message; `nil` when the task is cancelled.
            public mutating func next(isolation: isolated (any Actor)?) async -> M? {
                while let notification = await base.next(isolation: isolation) {
                    let message = DistributedNotificationCenter.message(M.self, notification, undecodable: undecodable)
                    if let message { return message }
                }
                return nil
            }
        }
    }
}
