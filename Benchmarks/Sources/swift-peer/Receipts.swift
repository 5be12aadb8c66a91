import Dispatch
import Synchronization

/// The time of each notification that a handler receives, up to a wanted number; lets one thread wait for the last.
final class Receipts: Sendable {
    private struct State {
        /// Filled beforehand, so that no page fault falls into what is measured.
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

    /// Takes one in. False when no more are wanted.
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

    /// Returns when all have come, with the time of each.
    func waitForAll() -> [Int] {
        complete.wait()
        return state.withLock { $0.times }
    }
}
