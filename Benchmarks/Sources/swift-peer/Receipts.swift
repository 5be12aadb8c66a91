import Dispatch
import Glibc
import Synchronization

/// Records the time of each notification that a handler receives, up to a limit. One thread can wait for the last.
final class Receipts: Sendable {
    private struct State {
        /// Filled beforehand, so that the measurement has no page faults.
        var times: [Int]
        var count = 0
    }

    private let state: Mutex<State>
    private let wanted: Int
    private let complete = DispatchSemaphore(value: 0)

    init(_ wanted: Int) {
        self.wanted = wanted
        state = Mutex(State(times: [Int](repeating: 0, count: wanted)))
    }

    /// Records a notification. Returns false once the limit is reached.
    func record(_ time: Int) -> Bool {
        let count = state.withLock { state in
            guard state.count < wanted else { return state.count + 1 }
            state.times[state.count] = time
            state.count += 1
            return state.count
        }
        if count == wanted { complete.signal() }
        return count < wanted
    }

    /// Waits for all notifications, and returns the time of each.
    func waitForAll() -> [Int] {
        complete.wait()
        return state.withLock { $0.times }
    }
}

/// Counts the notifications that a handler receives. One thread can wait for the last.
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

    /// Waits for all notifications, and returns the time of the last.
    func waitForAll() -> Int {
        complete.wait()
        return lastTime.load(ordering: .acquiring)
    }
}

/// Nanoseconds of CLOCK_MONOTONIC, which all processes of the machine share.
func now() -> Int {
    var time = timespec()
    clock_gettime(CLOCK_MONOTONIC, &time)
    return time.tv_sec * 1_000_000_000 + time.tv_nsec
}
