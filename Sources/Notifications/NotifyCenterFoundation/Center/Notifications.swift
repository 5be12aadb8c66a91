public import Foundation
import NotifyCenter

extension DistributedNotificationCenter {
    /// The matching posts as a sequence, registered when this returns (CF-X9, CF-A11): what is posted before the loop begins waits
    /// for it. Blocks for one answer of the bus.
    ///
    /// ```swift
    /// for await notification in center.notifications(named: .init("com.example.saved")) { … }
    /// ```
    ///
    /// Elements come in the order of arrival. While the loop is busy, the newest 4096 wait; older ones are dropped, which
    /// ``Notifications/droppedCount`` counts. The loop ends with its task's cancellation. Suspension coalesces (CF-S4).
    ///
    /// - Parameters:
    ///   - name: the name; `nil` for any (on macOS the name is no optional).
    ///   - object: the object, a `String`; `nil` for any.
    ///
    /// An object that is not text (CF-X6), and a bus that cannot be reached or refuses, are reported to
    /// `UnthrownFailures`; then the sequence is empty.
    public func notifications(named name: Notification.Name?, object: Any? = nil) -> Notifications {
        do {
            return Notifications(
                base: try center.blockingNotifications(
                    named: name.map { NotificationName($0) },
                    object: try ObjectText.text(object)
                )
            )
        } catch {
            UnthrownFailures.report(error, in: "DistributedNotificationCenter.\(#function)")
            return Notifications(base: nil)
        }
    }

    /// Notifications as they arrive. For one loop at a time; a second one on the same sequence shares the elements with the first.
    ///
    /// The observer behind it is removed when the last copy and iterator are gone.
    public struct Notifications: AsyncSequence, Sendable {
        fileprivate let base: NotificationSequence<DistributedNotification>?

        /// How many notifications gave way to newer ones, because the loop was busy.
        public var droppedCount: UInt64 { base?.counts.dropped ?? 0 }

        /// An iterator; it keeps the observer in place.
        public func makeAsyncIterator() -> Iterator {
            Iterator(base: base?.makeAsyncIterator())
        }

        /// Waits for one notification after the other.
        public struct Iterator: AsyncIteratorProtocol {
            fileprivate var base: NotificationSequence<DistributedNotification>.Iterator?

            /// The next notification; `nil` when the task is cancelled.
            public mutating func next(isolation: isolated (any Actor)?) async -> Notification? {
                await base?.next(isolation: isolation).map { Notification($0) }
            }
        }
    }
}
