import Foundation
import Glibc
import NotifyCenter
import NotifyCenterTestKit
import Synchronization
import Testing

@Suite("The page of the wire protocol", .timeLimit(.minutes(5)))
struct WireProtocolPageTests {
    private static let python = "/usr/bin/python3"

    private static var hasJeepney: Bool {
        access(python, X_OK) == 0
            && (try? ChildProcess(python, ["-c", "import jeepney"]))?.waitUntilExit() == 0
    }

    private static func programs() throws -> [String] {
        let root = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../../..").standardized
        let page = root.appending(path: "Sources/Notifications/NotifyCenter/NotifyCenter.docc/WireProtocol.md")
        return try String(contentsOf: page, encoding: .utf8).components(separatedBy: "```python\n").dropFirst()
            .compactMap { $0.components(separatedBy: "```").first }
    }

    @Test(
        "its Python programs send and receive notifications",
        .enabled(if: Self.hasJeepney, "python3-jeepney is not installed")
    )
    func python() async throws {
        let bus = try PrivateBus()
        let programs = try Self.programs()
        try #require(programs.count == 2)
        let observer = try ChildProcess(Self.python, ["-c", programs[0]], environment: bus.environment)
        try await observer.line { $0 == "observing" }
        let heard = Mutex<[DistributedNotification]>([])
        let center = DistributedNotifyCenter(bus: bus.bus)
        let observation = try await center.observe("com.example.order") { post in heard.withLock { $0.append(post) } }
        defer { observation.cancel() }

        let poster = try ChildProcess(Self.python, ["-c", programs[1]], environment: bus.environment)
        #expect(await poster.exitStatus() == 0, "\(poster.errorText)")
        try await eventually("the post arrives") { heard.withLock { !$0.isEmpty } }
        let first = heard.withLock { $0.first }
        let post = try #require(first)
        #expect(post.object == "till-3")
        #expect(post.userInfo?["total"]?.doubleValue == 12.5 && post.userInfo?["till"] == 3)
        try await observer.line { $0 == "com.example.order till-3 {'total': 12.5, 'till': 3}" }

        try center.post("com.example.order", object: "till-4", userInfo: ["total": 7])
        try await observer.line { $0 == "com.example.order till-4 {'total': 7}" }
    }
}
