import DeviceStorage
import Foundation
import NotifyCenterTestKit
import SQLite
import SharedDevice
import SharedDeviceBroker
import Testing

/// What an administrator does, and reads.
extension TestDevice {
    struct Outcome {
        let status: Int32
        let errors: String
    }

    /// Runs `shared-device` to its end.
    func run(_ arguments: [String], input: String? = nil) async throws -> Outcome {
        let command = try ChildProcess(ChildProcess.built("shared-device"), arguments)
        // A command that reads nothing may be gone already.
        if let input { try? command.write(input) }
        try command.closeInput()
        let status = await command.exitStatus()
        // Fails when the process has ended and all that it wrote is there.
        _ = try? await command.line { _ in false }
        return Outcome(status: status, errors: command.errorText)
    }

    /// Runs `shared-device user …` on this device's state.
    func user(_ arguments: String..., input: String? = nil) async throws -> Outcome {
        try await run(["user"] + arguments + ["--state", state], input: input)
    }

    /// Adds a user whose password is as that of the others.
    func add(_ name: String, _ arguments: String...) async throws {
        let outcome = try await run(
            ["user", "add", name, "--password-stdin", "--state", state] + arguments,
            input: "correct horse \(name)"
        )
        guard outcome.status == 0 else { throw Unexpected(description: outcome.errors) }
    }

    /// Runs `shared-device join` or `leave` as this administrator.
    func enrol(_ command: String, as name: String, password: String? = nil) async throws -> Outcome {
        try await run(
            [command, name, "--password-stdin", "--bus", bus.address],
            input: password ?? "correct horse \(name)"
        )
    }

    /// The details of all entries of this event in the audit log, oldest first.
    func audit(_ event: String) throws -> [String] {
        let database = try SQLiteConnection(path: "\(state)/\(DeviceDatabase.fileName)", busyTimeout: .seconds(60))
        return try database.rows("SELECT coalesce(detail, '') FROM audit WHERE event = ? ORDER BY sequence", event) {
            $0[0] ?? ""
        }
    }

    /// The details of all entries of this event are these. A change that nobody waits for is on the disk a little later.
    func expectAudit(_ event: String, _ details: [String]) async throws {
        do {
            try await eventually("the log has \(details) of \(event)") { try audit(event) == details }
        } catch {
            Issue.record("the log has \(try audit(event)) of \(event)")
            throw error
        }
    }

    /// Waits until the disk has it that nobody is signed in: a sign-out is answered before that where the disk is slow.
    func signOutIsWritten() async throws {
        let database = try DeviceDatabase(directory: state, .existing)
        try await eventually("the disk has the sign-out") { try DeviceStore.device(of: database).account == nil }
    }

    /// Makes the open session one that began then. The broker must not run.
    func backdate(to date: Date) throws {
        let database = try DeviceDatabase(directory: state)
        let content = try DeviceStore.read(database)
        guard var session = content.ledger.sessions[content.device.epoch] else {
            throw Unexpected(description: "nobody is signed in")
        }
        session.startedAt = date
        var batch = Batch(number: 1)
        batch.sessions = [content.device.epoch: session]
        try DeviceStore(database: database).commit(batch)
    }
}

/// Follows the changes of an app, cleaning up after each, and notes who is signed in.
final class Follower {
    private let log = Log()
    private let task: Task<Void, any Error>

    init(_ application: SharedDeviceApplication) {
        task = Task { [log] in
            for await change in application.accountChanges {
                log.add(change.current?.username ?? "-")
                try await application.cleanupDone(change)
            }
        }
    }

    deinit { task.cancel() }

    /// Waits until it has last heard this.
    func hears(_ name: String) async throws { try await eventually("\(name) is heard") { log.lines.last == name } }
}

/// A command of `shared-device`, run to its end.
struct AdministrationCommand {
    let status: Int32
    let lines: [String]
    let errors: String

    var output: String { lines.joined(separator: "\n") }
    var data: Data { Data(output.utf8) }

    /// Runs it on the device's state and, where it is one that calls the broker, on the device's bus.
    init(_ arguments: String..., on device: TestDevice, bus: String? = nil) async throws {
        var arguments = arguments
        arguments += ["--state", device.state]
        if arguments.first != "log" { arguments += ["--bus", bus ?? device.bus.address] }
        let process = try ChildProcess(ChildProcess.built("shared-device"), arguments)
        status = await process.exitStatus()
        // It fails when the process has ended and all of its output is there.
        _ = try? await process.line { _ in false }
        lines = process.lines
        errors = process.errorText
    }

    /// The standard output, read as JSON.
    func json<Value: Decodable>(_ type: Value.Type) throws -> Value {
        try JSONDecoder().decode(type, from: data)
    }
}
