import FoundationEssentials
import Glibc

// Several users on one machine, for tests of programs that serve or attack other users. These tests need root.

extension PrivateBus.Options {
    /// A bus like the system bus: every user may connect. Only the policy files allow owning names and calling anything
    /// but the bus.
    ///
    /// - Parameters:
    ///   - policies: the names of files in this package's `Packaging/system/system-bus`.
    ///   - standIns: replacements for the users in those files.
    @_spi(Extensions) public static func likeSystemBus(policies: [String], standIns: [String: String] = [:]) -> Self {
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

/// The path of a file in this package's folder `Packaging/system`, which has the files that are installed with the
/// programs.
@_spi(Extensions) public func shippedFile(_ name: String) -> String {
    let folder = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
    return folder.appending(path: "../../../Packaging/system/\(name)").standardized.path
}

extension ChildProcess {
    /// The setpriv(1) options that run a program as another user, who is only in the user's own group.
    @_spi(Extensions) public static func identity(_ user: UInt32) -> [String] {
        ["--reuid=\(user)", "--regid=\(user)", "--clear-groups"]
    }

    @_spi(Extensions) public convenience init(
        as user: UInt32,
        _ program: String,
        _ arguments: [String],
        environment: [String: String] = [:]
    ) throws {
        try self.init("setpriv", Self.identity(user) + [program] + arguments, environment: environment)
    }

    /// The processor time used so far, in steps of the kernel's clock (10 ms on most machines).
    ///
    /// - Throws: an error if it has ended.
    @_spi(Extensions) public func processorTime() throws -> Duration {
        let text = try String(contentsOfFile: "/proc/\(identifier)/stat", encoding: .utf8)
        // The program's name precedes this and may contain blanks.
        let fields = text[(text.lastIndex(of: ")") ?? text.startIndex)...].split(separator: " ")
        guard fields.count > 13, let own = Int(fields[12]), let kernel = Int(fields[13]) else {
            throw Failure("the kernel does not say how long \(identifier) has worked")
        }
        return .seconds(own + kernel) / Double(sysconf(CInt(_SC_CLK_TCK)))
    }

    /// The memory of the process itself, without its children, in bytes.
    ///
    /// - Throws: an error if it has ended.
    @_spi(Extensions) public func memory() throws -> (resident: Int, peak: Int) {
        let status = try String(contentsOfFile: "/proc/\(identifier)/status", encoding: .utf8)
        func bytes(_ field: String) -> Int {
            let line = status.split(separator: "\n").first { $0.hasPrefix(field) }
            return (line?.split(separator: " ").compactMap { Int($0) }.first ?? 0) * 1024
        }
        return (bytes("VmRSS:"), bytes("VmHWM:"))
    }
}
