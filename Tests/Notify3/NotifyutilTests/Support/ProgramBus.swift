import DBusTransport
import NotifyCenter
import NotifyCenterTestKit

/// notifyd did not start. Has its output.
private struct NotifydFailure: Error, CustomStringConvertible {
    let description: String
}

/// A bus, and notifyutil on it.
struct ProgramBus {
    static let program = ChildProcess.built("notifyutil")

    let bus: PrivateBus
    private let notifyd: ChildProcess?

    /// - Parameter hasNotifyd: whether notifyd runs on the bus. This starts it itself, because not every bus starts services.
    init(hasNotifyd: Bool = false) async throws {
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
                // It needs one of the user's inotify instances, which the kernel frees with a delay. If many processes come and go,
                // there may be none.
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

    /// Starts it.
    func start(_ arguments: String...) throws -> ChildProcess { try start(arguments) }

    /// Starts it.
    func start(_ arguments: [String], environment: [String: String] = [:]) throws -> ChildProcess {
        try ChildProcess(Self.program, arguments, environment: bus.environment.merging(environment) { $1 })
    }

    /// Starts it, with `--ready`, and waits until it watches.
    func startReady(_ arguments: String...) async throws -> ChildProcess {
        let child = try start(["--ready"] + arguments)
        try await eventually("it watches") { child.errorText.contains("ready") }
        return child
    }

    /// Waits until notifyd knows a name. A process tells notifyd after it has registered the name.
    func waitUntilListed(_ name: String) async throws {
        try await eventually("\(name) is listed") { try await run("--list", name).lines.count > 1 }
    }

    /// Runs it to its end.
    func run(_ arguments: String...) async throws -> Result { try await run(arguments) }

    /// Runs it to its end.
    func run(_ arguments: [String], environment: [String: String] = [:]) async throws -> Result {
        try await Result(of: start(arguments, environment: environment))
    }

    /// Runs a shell on this bus, with the program as `$N`.
    func shell(_ script: String) async throws -> Result {
        let environment = bus.environment.merging(["N": Self.program]) { $1 }
        return try await Result(of: ChildProcess("bash", ["-c", script], environment: environment))
    }
}

/// The exit status and the output of a program.
struct Result {
    let status: Int32
    let lines: [String]
    let errors: String

    init(of child: ChildProcess) async throws {
        status = await child.exitStatus()
        // Its last output may still be on its way.
        _ = try? await child.line { _ in false }
        (lines, errors) = (child.lines, child.errorText)
    }
}
