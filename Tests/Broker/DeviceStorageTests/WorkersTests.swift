import Basics
import DBus
import Dispatch
@_spi(Extensions) import NotifyCenterTestKit
import Synchronization
import Testing

@testable import DeviceStorage

// S1
@Suite("The broker's own threads for blocking work")
struct WorkersTests {
    /// Counts the jobs that run at the same time, and lets them end one by one.
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

    @Test("the number of running jobs is limited, and all jobs run")
    func width() async throws {
        let workers = Workers(label: "test", count: 2, capacity: 100)
        let gate = Gate()
        let values = await withTaskGroup(of: Int?.self) { group in
            for number in 0..<20 {
                group.addTask {
                    await workers.run {
                        gate.pass()
                        return number
                    }
                }
            }
            await onThread {
                // Two jobs run, and neither ends until `letOneOut` is called.
                gate.waitForEntry()
                gate.waitForEntry()
                for _ in 0..<20 { gate.letOneOut() }
            }
            return await group.reduce(into: []) { $0.append($1) }
        }
        #expect(values.compactMap(\.self).sorted() == Array(0..<20))
        #expect(gate.most == 2)
    }

    @Test("jobs over the capacity are refused at once; later ones are accepted")
    func capacity() async throws {
        let workers = Workers(label: "test", count: 1, capacity: 1)
        let gate = Gate()
        async let running: Void? = workers.run { gate.pass() }
        await onThread { gate.waitForEntry() }
        let results = await withTaskGroup(of: Bool.self) { group in
            for _ in 0..<3 {
                group.addTask { await workers.run { gate.pass() } != nil }
            }
            // The refused jobs return first, because no accepted job may end yet.
            var results = [await group.next(), await group.next()]
            gate.letOneOut()
            gate.letOneOut()
            results.append(await group.next())
            return results
        }
        #expect(await running != nil)
        #expect(results == [false, false, true])
        gate.letOneOut()
        await workers.run { gate.pass() }
    }

    @Test("one thread runs its jobs in order")
    func order() async throws {
        let workers = Workers(label: "test", count: 1, capacity: 1000)
        let done = Locked<[Int]>([])
        for number in 0..<500 {
            let isTaken = workers.submit { done.withLock { $0.append(number) } }
            #expect(isTaken)
        }
        await workers.run {}
        #expect(done.withLock { $0 } == Array(0..<500))
    }

    // Several threads, because the release wakes each of them.
    @Test("queued jobs run even after their owner is released")
    func ownerGone() async throws {
        let done = Locked(0)
        do {
            let workers = Workers(label: "test", count: 2, capacity: 1000)
            for _ in 0..<200 { workers.submit { done.withLock { $0 += 1 } } }
        }
        try await eventually("all jobs have run") { done.withLock { $0 } == 200 }
    }

    @Test("blocked jobs do not keep tasks from running")
    func tasksGoOn() async throws {
        let workers = Workers(label: "test", count: 64, capacity: 64)
        let gate = Gate()
        for _ in 0..<128 { workers.submit { gate.pass() } }
        let sum = await withTaskGroup(of: Int.self) { group in
            for number in 0..<100 { group.addTask { number } }
            return await group.reduce(0, +)
        }
        #expect(sum == 4950)
        for _ in 0..<128 { gate.letOneOut() }
    }
}
