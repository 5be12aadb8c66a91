import Foundation
import NotifyCenterTestKit
import Testing

/// A bus, and a program to run on it.
struct ProgramBus {
    let bus: PrivateBus
    private let program: String
    private let notifyd: ChildProcess?

    /// - Parameters:
    ///   - program: notifyutil or notify-center.
    ///   - hasNotifyd: Whether notifyd runs on the bus. It is started here, because not every bus starts services.
    init(_ program: String = "notifyutil", hasNotifyd: Bool = false) async throws {
        let bus = try PrivateBus()
        let notifyd = try await hasNotifyd ? startNotifyd(on: bus) : nil
        self.init(program, on: bus, notifyd: notifyd)
    }

    /// Uses a program on the test's own bus.
    init(_ program: String, on bus: PrivateBus, notifyd: ChildProcess? = nil) {
        (self.program, self.bus, self.notifyd) = (ChildProcess.built(program), bus, notifyd)
    }

    func with(_ program: String) -> ProgramBus { ProgramBus(program, on: bus, notifyd: notifyd) }

    func start(_ arguments: String...) throws -> ChildProcess { try start(arguments) }

    func start(_ arguments: [String], environment: [String: String] = [:]) throws -> ChildProcess {
        try ChildProcess(program, arguments, environment: bus.environment.merging(environment) { $1 })
    }

    /// Starts the program with `--ready`, and waits until it watches.
    func startReady(_ arguments: String...) async throws -> ChildProcess {
        let child = try start(arguments + ["--ready"])
        try await eventually("it watches") { child.errorText.contains("ready") }
        return child
    }

    /// Waits until notifyd knows a name, because a process tells notifyd only after it has registered the name.
    func waitUntilListed(_ name: String) async throws {
        let notifyutil = with("notifyutil")
        try await eventually("\(name) is listed") {
            try await notifyutil.run("--dump").lines.contains { $0.contains(name) }
        }
    }

    func run(_ arguments: String...) async throws -> Outcome { try await run(arguments) }

    func run(_ arguments: [String], environment: [String: String] = [:]) async throws -> Outcome {
        try await Outcome(of: start(arguments, environment: environment))
    }

    /// Runs a shell on this bus, with the program as `$N`.
    func shell(_ script: String) async throws -> Outcome {
        let environment = bus.environment.merging(["N": program]) { $1 }
        return try await Outcome(of: ChildProcess("bash", ["-c", script], environment: environment))
    }
}

/// The exit status and the output of a program.
struct Outcome {
    let status: Int32
    let lines: [String]
    let errors: String

    /// Waits for the end of the program.
    init(of child: ChildProcess) async {
        status = await child.exitStatus()
        (lines, errors) = (child.lines, child.errorText)
    }
}

/// The object of a line of JSON.
func jsonObject(_ line: String) throws -> [String: Any] {
    try #require(try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any])
}

/// The path of a file of this package.
func packagePath(_ path: String) -> String {
    URL(fileURLWithPath: #filePath).deletingLastPathComponent().appendingPathComponent("../../../../\(path)")
        .standardized.path
}
