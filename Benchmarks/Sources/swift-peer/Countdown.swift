import Dispatch
import Synchronization

/// Counts what a handler receives, and lets one thread wait for the last.
final class Countdown: Sendable {
    private let left: Atomic<Int>
    private let lastTime = Atomic(0)
    private let complete = DispatchSemaphore(value: 0)

    init(_ wanted: Int) {
        left = Atomic(wanted)
    }

    func record() {
        guard left.subtract(1, ordering: .relaxed).newValue == 0 else { return }
        lastTime.store(now(), ordering: .releasing)
        complete.signal()
    }

    /// Returns when all have come, with the time of the last.
    func waitForAll() -> Int {
        complete.wait()
        return lastTime.load(ordering: .acquiring)
    }
}
