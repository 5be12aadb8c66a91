import Foundation
import Glibc
import NotifyCenterTestKit

/// Where programs are looked for, and found.
struct DevicePrograms: Sendable {
    /// Names a directory that programs are looked for in first.
    static let environmentVariable = "SHARED_DEVICE_PROGRAMS"

    let broker: String
    let administration: String
    private let directories: [String]

    /// - Parameter directory: where to look first.
    /// - Throws: ``TestDeviceError/Code/deviceFailed`` where the device's own programs are missing.
    init(directory: String?) throws(TestDeviceError) {
        let environment = ProcessInfo.processInfo.environment
        let beside = URL(fileURLWithPath: ChildProcess.built("x")).deletingLastPathComponent().path
        let named = [directory, environment[Self.environmentVariable]].compactMap(\.self).filter { !$0.isEmpty }
        let path = (environment["PATH"] ?? "").split(separator: ":").map(String.init)
        directories = named + [beside] + path
        broker = try Self.find("shared-device-broker", in: directories, .deviceFailed)
        administration = try Self.find("shared-device", in: directories, .deviceFailed)
    }

    /// The path of an app's program.
    ///
    /// - Throws: ``TestDeviceError/Code/programMissing``.
    func path(of executable: String) throws(TestDeviceError) -> String {
        guard executable.contains("/") else { return try Self.find(executable, in: directories) }
        guard access(executable, X_OK) == 0 else {
            throw TestDeviceError(
                .programMissing,
                "\(executable) cannot be run (\(String(cString: strerror(errno)))); has it been built?"
            )
        }
        return executable
    }

    private static func find(
        _ name: String,
        in directories: [String],
        _ code: TestDeviceError.Code = .programMissing
    ) throws(TestDeviceError) -> String {
        for directory in directories where access("\(directory)/\(name)", X_OK) == 0 { return "\(directory)/\(name)" }
        throw TestDeviceError(
            code,
            "the program \(name) was found neither beside the running program, nor in PATH; build or install it, and "
                + "name its directory in \(environmentVariable)"
        )
    }
}
