import Basics
import DBus
package import NotifyCenterTestKit

/// notifyd did not start. The description has its output.
private struct NotifydFailure: Error, CustomStringConvertible {
    let description: String
}

/// A bus, and a program to run on it.
package struct ProgramBus {
    package let bus: PrivateBus
    private let program: String
    private let notifyd: ChildProcess?

    /// - Parameters:
    ///   - program: notifyutil or notify-center.
    ///   - hasNotifyd: Whether notifyd runs on the bus. It is started here, because not every bus starts services.
    package init(_ program: String = "notifyutil", hasNotifyd: Bool = false) async throws {
        self.program = ChildProcess.built(program)
        let bus = try PrivateBus()
        self.bus = bus
        guard hasNotifyd else {
            notifyd = nil
            return
        }
        let connection = try DBusConnection.open(bus.bus)
        func start() throws -> ChildProcess {
            try ChildProcess(ChildProcess.built("notifyd"), environment: bus.environment)
        }
        var child = try start()
        try await eventually("notifyd is on the bus") {
            if !child.isRunning {
                // notifyd needs one of the user's inotify instances. The kernel frees them with a delay, so there may
                // be none if many processes come and go.
                guard child.errorText.contains("max_user_instances") else {
                    throw NotifydFailure(description: "notifyd ended: \(child.errorText)")
                }
                try await Task.sleep(for: .milliseconds(200))
                child = try start()
            }
            return try await connection.owner(of: "org.notifycenter.Notifyd1") != nil
        }
        notifyd = child
    }

    /// Uses a program on the test's own bus.
    package init(_ program: String, on bus: PrivateBus) {
        (self.program, self.bus, notifyd) = (ChildProcess.built(program), bus, nil)
    }

    private init(_ program: String, _ other: ProgramBus) {
        (self.program, bus, notifyd) = (ChildProcess.built(program), other.bus, other.notifyd)
    }

    package func with(_ program: String) -> ProgramBus { ProgramBus(program, self) }

    package func start(_ arguments: String...) throws -> ChildProcess { try start(arguments) }

    package func start(_ arguments: [String], environment: [String: String] = [:]) throws -> ChildProcess {
        try ChildProcess(program, arguments, environment: bus.environment.merging(environment) { $1 })
    }

    /// Starts the program with `--ready`, and waits until it watches.
    package func startReady(_ arguments: String...) async throws -> ChildProcess {
        let child = try start(arguments + ["--ready"])
        try await eventually("it watches") { child.errorText.contains("ready") }
        return child
    }

    /// Waits until notifyd knows a name, because a process tells notifyd only after it has registered the name.
    package func waitUntilListed(_ name: String) async throws {
        let notifyutil = with("notifyutil")
        try await eventually("\(name) is listed") {
            try await notifyutil.run("--dump").lines.contains { $0.contains(name) }
        }
    }

    package func run(_ arguments: String...) async throws -> Outcome { try await run(arguments) }

    package func run(_ arguments: [String], environment: [String: String] = [:]) async throws -> Outcome {
        try await Outcome(of: start(arguments, environment: environment))
    }

    /// Runs a shell on this bus, with the program as `$N`.
    package func shell(_ script: String) async throws -> Outcome {
        let environment = bus.environment.merging(["N": program]) { $1 }
        return try await Outcome(of: ChildProcess("bash", ["-c", script], environment: environment))
    }
}

/// The exit status and the output of a program.
package struct Outcome {
    package let status: Int32
    package let lines: [String]
    package let errors: String

    init(of child: ChildProcess) async throws {
        status = await child.exitStatus()
        // Waits for the rest of the output.
        _ = try? await child.line { _ in false }
        (lines, errors) = (child.lines, child.errorText)
    }
}
