import ExampleSupport
import NotifyCenter
import SharedDevice
import Synchronization

/// What the demonstration itself did and saw, as rows of the timeline.
final class Notes: Sendable {
    private let rows = Mutex<[Timeline.Row]>([])
    private let observation = Mutex<NotificationObservation?>(nil)

    func add(_ process: String, _ event: String, _ text: String) {
        let row = Timeline.Row(
            nanoseconds: MonotonicClock.nanoseconds,
            process: process,
            event: event,
            text: text
        )
        rows.withLock { $0.append(row) }
    }

    func rows(from start: UInt64, to end: UInt64) -> [Timeline.Row] {
        rows.withLock { $0.filter { (start..<end).contains($0.nanoseconds) } }
    }

    /// Notes every broadcast of an account change from here on.
    func listen(on bus: Bus) async throws {
        let observation = try await DarwinNotifyCenter(bus: bus)
            .observe(.sharedModeCurrentAccountChanged, delivery: .immediate) { [weak self] notification in
                self?.add("broker", "broadcast", "broadcasts \(notification.name)")
            }
        self.observation.withLock { $0 = observation }
    }
}
