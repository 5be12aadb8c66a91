import Synchronization

/// A center's ``Suspension/limit``, where each of its registrations reads it right before a delivery.
final class DeliveryGate: Sendable {
    private let atomicLimit = Atomic<UInt64>(.max)

    /// Notifications numbered below it may be delivered.
    var limit: UInt64 {
        get { atomicLimit.load(ordering: .acquiring) }
        set { atomicLimit.store(newValue, ordering: .releasing) }
    }
}
