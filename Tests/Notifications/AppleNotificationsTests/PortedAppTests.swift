import Foundation
import NotifyCenterTestKit
import Testing

@Suite("A ported program, in Swift 5 mode, between processes")
struct PortedAppTests {
    private let bus: PrivateBus

    init() throws { bus = try PrivateBus() }

    private func run(_ arguments: String...) throws -> ChildProcess {
        try ChildProcess(ChildProcess.built("ported-app"), arguments, environment: bus.environment)
    }

    // CF-D2, CF-A11, CF-P4
    @Test("it receives on its main thread, with every main loop", arguments: ["run-loop", "cf-run-loop", "dispatch"])
    func listens(_ loop: String) async throws {
        let listener = try run(loop, "com.example.ported")
        try await listener.line { $0 == "ready" }
        #expect(try await run("post", "com.example.ported").exitStatus() == 0)
        try await listener.line {
            $0 == "darwin com.example.ported true" || loop == "dispatch" && $0.hasPrefix("darwin")
        }
        try await listener.line { $0 == "later 1" }
        #expect(try await run("post", "com.example.ported", "hello").exitStatus() == 0)
        try await listener.line { $0 == "distributed hello ported-app" }
        // Its callback stops the run loop, or ends the process.
        let stops = loop == "cf-run-loop"
        #expect(try await run("post", "com.example.ported", stops ? "stop" : "exit").exitStatus() == 0)
        #expect(await listener.exitStatus() == 0)
        #expect(listener.lines.contains("stopped") == stops)
        #expect(listener.errorText == "")
    }

    // CF-T9, CF-X1, CF-X2
    @Test(
        "every common form compiles and receives its notifications",
        arguments: [
            "darwin": [
                "function com.example.forms.paused", "function com.example.forms.resumed",
                "function com.example.forms.constant", "closure started", "parameter com.example.forms.parameter",
                "optional com.example.forms.started", "stream",
            ],
            "distributed": [
                "property dark", "function com.example.forms.themeChanged Playing true", "queue",
                "suspension behaviour 3", "launcher com.example.app", "launcher options", "sequence com.example.app",
                "sequence options", "CoreFoundation till 1",
            ],
            "notify": ["queue 0", "main true", "check 1"],
            "top-level": ["top level com.example.forms.top 1", "top level distributed"],
        ]
    )
    func forms(kind: String, lines: [String]) async throws {
        let app = try run("forms", kind)
        try await eventually("each form has heard") { Set(app.lines).isSuperset(of: lines) }
        #expect(app.lines.sorted() == lines.sorted())
        #expect(app.errorText == "")
    }

    @Test("without a bus it keeps running, and each failed function reports why")
    func noBus() async throws {
        let listener = try ChildProcess(
            ChildProcess.built("ported-app"),
            ["cf-run-loop", "com.example.ported"],
            environment: ["NOTIFY_CENTER_BUS": "unix:path=/nonexistent/bus"]
        )
        try await listener.line { $0 == "ready" }
        try await eventually("it says so") {
            listener.errorText.split(separator: "\n").count == 2
                && listener.errorText.hasPrefix("CFNotificationCenterAddObserver: ")
                && listener.errorText.contains("/nonexistent/bus")
        }
        #expect(listener.isRunning)
    }
}
