import Foundation
import NotifyCenterTestKit

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
        if arguments.prefix(2) != ["apps", "waive"] { arguments += ["--state", device.state] }
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
