import DBusTransport
import Dispatch
import Synchronization
import Testing

@testable import SharedDeviceBroker

@Suite("Blocking work")
struct BlockingWorkTests {
    /// Counts who is inside, and lets them out one by one.
    private final class Gate: Sendable {
        private let inside = Locked((now: 0, most: 0))
        private let entered = DispatchSemaphore(value: 0)
        private let exit = DispatchSemaphore(value: 0)

        var most: Int { inside.withLock { $0.most } }

        func pass() {
            inside.withLock {
                $0.now += 1
                $0.most = max($0.most, $0.now)
            }
            entered.signal()
            exit.wait()
            inside.withLock { $0.now -= 1 }
        }

        func waitForEntry() { entered.wait() }
        func letOneOut() { exit.signal() }
    }

    @Test("at most so many bodies run at once, and all of them run")
    func width() async throws {
        let work = BlockingWork(label: "test", width: 2, capacity: 100)
        let gate = Gate()
        let values = try await withThrowingTaskGroup(of: Int.self) { group in
            for number in 0..<20 {
                group.addTask {
                    try await work.run {
                        gate.pass()
                        return number
                    }
                }
            }
            try await onThread {
                // Two are in, and stay in until they are let out.
                gate.waitForEntry()
                gate.waitForEntry()
                for _ in 0..<20 { gate.letOneOut() }
            }
            return try await group.reduce(into: []) { $0.append($1) }
        }
        #expect(values.sorted() == Array(0..<20))
        #expect(gate.most == 2)
    }

    @Test("over the capacity work is refused, and there is room again afterwards")
    func capacity() async throws {
        let work = BlockingWork(label: "test", width: 1, capacity: 1)
        let gate = Gate()
        async let running: Void = work.run { gate.pass() }
        try await onThread { gate.waitForEntry() }
        let results = await withTaskGroup(of: Bool.self) { group in
            for _ in 0..<3 {
                group.addTask { (try? await work.run { gate.pass() }) != nil }
            }
            // The refused ones answer first: nothing was let out yet.
            var results = [await group.next(), await group.next()]
            gate.letOneOut()
            gate.letOneOut()
            results.append(await group.next())
            return results
        }
        try await running
        #expect(results == [false, false, true])
        gate.letOneOut()
        try await work.run { gate.pass() }
    }
}
