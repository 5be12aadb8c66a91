import Foundation
import NotifyCenterFoundation
import NotifyCenterTestKit
import Testing

@Suite("Foundation's spelling between real processes")
struct BetweenProcessesTests {
    private let bus: PrivateBus

    init() throws { bus = try PrivateBus() }

    private func peer(_ arguments: String...) throws -> ChildProcess {
        try ChildProcess(ChildProcess.built("foundation-peer"), arguments, environment: bus.environment)
    }

    // CF-D2, CF-P10
    @Test("a block is called on the main thread of another process, whose main run loop runs")
    func runLoop() async throws {
        let observer = try peer("observe", "com.example.n")
        try await observer.line { $0 == "ready" }
        #expect(try await peer("post", "com.example.n", "object", "text").exitStatus() == 0)
        try await observer.line { $0 == "com.example.n object text true main:true" }
        DistributedNotificationCenter(bus: bus.bus).post(name: .init("com.example.n"), object: nil)
        try await observer.line { $0 == "com.example.n - - false main:true" }
    }

    // CF-D2
    @Test("a block is called in a process that sits in dispatchMain")
    func dispatchMain() async throws {
        let observer = try peer("dispatch", "com.example.n")
        try await observer.line { $0 == "ready" }
        #expect(try await peer("post", "com.example.n", "object", "text").exitStatus() == 0)
        try await observer.line { $0.hasPrefix("com.example.n object text true") }
    }
}
