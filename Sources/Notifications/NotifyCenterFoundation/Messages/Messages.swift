import NotifyCenter

extension DistributedNotificationCenter {
    /// Messages as they arrive. For one loop at a time; a second one on the same sequence shares the elements with the first.
    ///
    /// The observer behind it is removed when the last copy and iterator are gone.
    public struct Messages<M: AsyncMessage>: AsyncSequence, Sendable {
        let base: NotificationSequence<DistributedNotification>
        let undecodable: Counter

        /// How many messages gave way to newer ones, because the loop was busy.
        public var droppedCount: UInt64 { base.counts.dropped }

        /// An iterator; it keeps the observer in place.
        public func makeAsyncIterator() -> Iterator {
            Iterator(base: base.makeAsyncIterator(), undecodable: undecodable)
        }

        /// Waits for one message after the other.
        public struct Iterator: AsyncIteratorProtocol {
            fileprivate var base: NotificationSequence<DistributedNotification>.Iterator
            fileprivate let undecodable: Counter

            /// The next message; `nil` when the task is cancelled.
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
