import FoundationEssentials
import Glibc

// Several users on one machine, for the tests of programs that serve or attack others. Root alone can be several users.

extension PrivateBus.Options {
    /// A bus like the system bus: every user may connect, and nobody may own a name or call anybody but the bus, except as the policy files say.
    ///
    /// - Parameters:
    ///   - policies: the names of files in this package's `Service/system-bus`.
    ///   - standIns: who stands for a user whom those files name.
    package static func likeSystemBus(policies: [String], standIns: [String: String] = [:]) -> Self {
        var options = Self(denials: [
            #"<deny own="*"/>"#, #"<deny send_type="method_call"/>"#,
            #"<allow send_destination="org.freedesktop.DBus"/>"#,
        ])
        options.admitsOtherUsers = true
        options.configurationFiles = policies.map { shippedFile("system-bus/\($0)") }
        options.standIns = standIns
        return options
    }
}

/// The path of a file in this package's folder `Service`, which holds what is installed beside the programs.
package func shippedFile(_ name: String) -> String {
    let folder = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
    return folder.appending(path: "../../../Service/\(name)").standardized.path
}

extension ChildProcess {
    /// The options of setpriv(1) that make a program another user's, who is in no group but the user's own.
    package static func identity(_ user: UInt32) -> [String] {
        ["--reuid=\(user)", "--regid=\(user)", "--clear-groups"]
    }

    /// Starts a program as another user.
    package convenience init(
        as user: UInt32,
        _ program: String,
        _ arguments: [String],
        environment: [String: String] = [:]
    ) throws {
        try self.init("setpriv", Self.identity(user) + [program] + arguments, environment: environment)
    }

    /// How long processors have worked for it so far, in steps of the kernel's clock (10 ms on most machines).
    ///
    /// - Throws: an error if it has ended.
    package func processorTime() throws -> Duration {
        let text = try String(contentsOfFile: "/proc/\(identifier)/stat", encoding: .utf8)
        // The program's name before may have blanks.
        let fields = text[(text.lastIndex(of: ")") ?? text.startIndex)...].split(separator: " ")
        guard fields.count > 13, let own = Int(fields[12]), let kernel = Int(fields[13]) else {
            throw Failure("the kernel does not say how long \(identifier) has worked")
        }
        return .seconds(own + kernel) / Double(sysconf(CInt(_SC_CLK_TCK)))
    }

    /// How much memory a process has.
    package struct Memory: Sendable {
        /// What is resident now, in bytes.
        package let resident: Int
        /// The most that was ever resident, in bytes.
        package let peak: Int
    }

    /// Of the process itself, without its children.
    ///
    /// - Throws: an error if it has ended.
    package func memory() throws -> Memory {
        let status = try String(contentsOfFile: "/proc/\(identifier)/status", encoding: .utf8)
        func bytes(_ field: String) -> Int {
            let line = status.split(separator: "\n").first { $0.hasPrefix(field) }
            return (line?.split(separator: " ").compactMap { Int($0) }.first ?? 0) * 1024
        }
        return Memory(resident: bytes("VmRSS:"), peak: bytes("VmHWM:"))
    }
}
