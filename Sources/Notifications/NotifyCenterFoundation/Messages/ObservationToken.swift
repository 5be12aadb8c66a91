extension DistributedNotificationCenter {
    /// An observer of messages in place. Its end of life, or `removeObserver(_:)`,
    /// removes it.
    public final class ObservationToken: Hashable, Sendable {
        private let dropped: @Sendable () -> UInt64
        private let end: @Sendable () -> Void

        init(droppedCount: @escaping @Sendable () -> UInt64, remove: @escaping @Sendable () -> Void) {
            dropped = droppedCount
            end = remove
        }

        deinit { end() }

        /// How many messages gave way to newer ones, because the observer was busy.
        public var droppedCount: UInt64 { dropped() }

        func remove() { end() }

        /// Whether both are one token.
        public static func == (left: ObservationToken, right: ObservationToken) -> Bool { left === right }

        /// Feeds the identity.
        public func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }
    }
}
