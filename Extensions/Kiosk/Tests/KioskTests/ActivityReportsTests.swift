import NotifyCenterTestKit
import SharedDevice
import Synchronization
import Testing

@testable import SeatInput

@Suite("Reports of input")
struct ActivityReportsTests {
    /// Input that the test makes.
    private final class MadeInput: SeatInput {
        let name = "a test"
        private let last = Mutex<SuspendingClock.Instant?>(nil)

        func make() { last.withLock { $0 = .now } }

        func next(after moment: SuspendingClock.Instant) async throws {
            while last.withLock({ $0.map { $0 <= moment } ?? true }) { try await Task.sleep(for: .milliseconds(1)) }
        }
    }

    private final class Reports: Sendable {
        private let state = Mutex((count: 0, refusal: SharedDeviceError?.none, lines: [String]()))

        var count: Int { state.withLock { $0.count } }
        var lines: [String] { state.withLock { $0.lines } }
        func refuse(_ refusal: SharedDeviceError?) { state.withLock { $0.refusal = refusal } }
        func log(_ line: String) { state.withLock { $0.lines.append(line) } }

        func take() throws(SharedDeviceError) {
            let refusal = state.withLock { state in
                state.count += 1
                return state.refusal
            }
            if let refusal { throw refusal }
        }
    }

    private let input = MadeInput()
    private let reports = Reports()

    private func run(_ body: () async throws -> Void) async throws {
        let loop = ActivityReports(of: input, interval: .milliseconds(5), log: reports.log) {
            [reports] () throws(SharedDeviceError) in try reports.take()
        }
        let running = Task { try await loop.run() }
        try await body()
        running.cancel()
        await #expect(throws: CancellationError.self) { try await running.value }
    }

    @Test("each input causes a report, and input before the start causes none")
    func inputs() async throws {
        input.make()
        try await run {
            try await Task.sleep(for: .milliseconds(50))
            #expect(reports.count == 0)
            for count in 1...5 {
                try await eventually("report \(count)") {
                    if reports.count < count { input.make() }
                    return reports.count == count
                }
            }
        }
        #expect(reports.lines.isEmpty)
    }

    @Test("the next input retries a failed report, and each problem is logged once")
    func failures() async throws {
        reports.refuse(SharedDeviceError(.brokerUnavailable, attempted: "report", message: "the broker is away"))
        try await run {
            try await eventually("three attempts") {
                input.make()
                return reports.count >= 3
            }
            reports.refuse(nil)
            try await eventually("it works again") {
                input.make()
                return reports.lines.count == 2
            }
        }
        #expect(reports.lines[0].contains("the broker is away"))
        #expect(reports.lines[1] == "the broker gets the reports again")
    }
}
