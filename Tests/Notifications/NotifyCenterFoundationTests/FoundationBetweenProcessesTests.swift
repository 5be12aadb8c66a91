import Foundation
import NotifyCenterFoundation
import NotifyCenterTestKit
import Testing

@Suite("Foundation's API between real processes")
struct FoundationBetweenProcessesTests {
    private let bus: PrivateBus

    init() throws { bus = try PrivateBus() }

    private func probe(_ arguments: String...) throws -> ChildProcess {
        try ChildProcess(ChildProcess.built("notification-probe"), arguments, environment: bus.environment)
    }

    // CF-D2, CF-P10
    @Test("blocks run in other processes, in a main run loop and in dispatchMain")
    func mainLoops() async throws {
        let (looping, dispatching) = (try probe("observe", "com.example.n"), try probe("dispatch", "com.example.n"))
        for observer in [looping, dispatching] { try await observer.line { $0 == "ready" } }
        #expect(try await probe("post", "com.example.n", "object", "text").exitStatus() == 0)
        try await looping.line { $0 == "com.example.n object text true main:true" }
        try await dispatching.line { $0.hasPrefix("com.example.n object text true") }
        DistributedNotificationCenter(bus: bus.bus).post(name: .init("com.example.n"), object: nil)
        try await looping.line { $0 == "com.example.n - - false main:true" }
    }
}
