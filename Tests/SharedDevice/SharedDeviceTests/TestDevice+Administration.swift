import BrokerCore
import DeviceStorage
import Foundation
import NotifyCenterTestKit
import SharedDevice
import SharedDeviceBroker
import Testing

/// What `shared-device` wrote, and how it ended.
struct CommandOutcome {
    let status: Int32
    let lines: [String]
    let errors: String

    var output: String { lines.joined(separator: "\n") }

    /// Runs the command until it ends.
    init(_ arguments: [String], input: String? = nil, environment: [String: String] = [:]) async throws {
        let process = try ChildProcess(ChildProcess.built("shared-device"), arguments, environment: environment)
        // A command that reads no input may have ended already.
        if let input { try? process.write(input) }
        try process.closeInput()
        status = await process.exitStatus()
        lines = process.lines
        errors = process.errorText
    }

    func json<Value: Decodable>(_ type: Value.Type) throws -> Value {
        try JSONDecoder().decode(type, from: Data(output.utf8))
    }
}

extension TemporaryDirectory {
    /// Makes a folder in the directory, and returns its path.
    func folder(_ name: String = "tmp") throws -> String {
        try FileManager.default.createDirectory(atPath: "\(path)/\(name)", withIntermediateDirectories: true)
        return "\(path)/\(name)"
    }
}

extension DeviceOnPrivateBus {
    /// Runs the command on the device's state and, if the command calls the broker, on the device's bus.
    func command(_ arguments: String..., bus: String? = nil) async throws -> CommandOutcome {
        let ofBus = arguments.first == "log" ? [] : ["--bus", bus ?? self.bus.address]
        return try await CommandOutcome(arguments + ["--state", state] + ofBus)
    }

    func user(_ arguments: String...) async throws -> CommandOutcome {
        try await CommandOutcome(["user"] + arguments + ["--state", state])
    }

    /// Adds a user with the same kind of password as the other users.
    @discardableResult
    func add(_ name: String, _ arguments: String...) async throws -> CommandOutcome {
        let command = ["user", "add", name, "--password-stdin", "--state", state]
        return try await CommandOutcome(command + arguments, input: "correct horse \(name)")
    }

    func enrol(_ command: String, as name: String, password: String? = nil) async throws -> CommandOutcome {
        let arguments = [command, name, "--password-stdin", "--bus", bus.address]
        return try await CommandOutcome(arguments, input: password ?? "correct horse \(name)")
    }

    /// The details of all entries of this event in the audit log, oldest first.
    func audit(_ event: String) throws -> [String] {
        try database().rows("SELECT coalesce(detail, '') FROM audit WHERE event = ? ORDER BY sequence", event) {
            $0[0] ?? ""
        }
    }

    /// Waits until all entries of this event have these details. A change that no request waits for reaches the disk a
    /// little later.
    func expectAudit(_ event: String, _ details: [String]) async throws {
        do {
            try await eventually("the log has \(details) of \(event)") { try audit(event) == details }
        } catch {
            Issue.record("the log has \(try audit(event)) of \(event)")
            throw error
        }
    }

    /// Waits until the sign-out is on disk: on a slow disk the response comes earlier.
    func signOutIsWritten() async throws {
        let database = try DeviceDatabase(directory: state, .existing)
        try await eventually("the disk has the sign-out") { try DeviceStore.device(of: database).account == nil }
    }

    /// Moves the beginning of the open session to `date`. The broker must not run.
    func backdate(to date: Date) throws {
        let database = try DeviceDatabase(directory: state)
        let content = try DeviceStore.read(database)
        guard var session = content.ledger.sessions[content.device.epoch] else {
            throw Unexpected(description: "no account is signed in")
        }
        session.startedAt = date
        var batch = Batch(number: 1)
        batch.sessions = [content.device.epoch: session]
        try DeviceStore(database: database).commit(batch)
    }

    /// Signs ada in, and restarts the broker as if the session had begun and was last used so many seconds ago.
    func signInAndRestart(idleFor seconds: Double) async throws {
        try await application().signIn("ada")
        let file = "\(state)/last-activity"
        try await eventually("the time is kept") { FileManager.default.fileExists(atPath: file) }
        killBroker()
        let date = Date(timeIntervalSinceNow: -seconds)
        try backdate(to: date)
        try FileManager.default.setAttributes([.modificationDate: date], ofItemAtPath: file)
        try await startBroker()
    }
}
