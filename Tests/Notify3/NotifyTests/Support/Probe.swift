import Basics
import DBus
@_spi(Extensions) import NotifyCenterTestKit
import Synchronization
import Testing

/// A second process that uses notify(3).
final class Probe: Sendable {
    let process: ChildProcess
    private let asked = Locked(0)

    /// - Parameter user: The user of the process. Only root can choose another user.
    init(_ environment: [String: String], asUser user: UInt32? = nil) throws {
        let program = ChildProcess.built("notify-probe")
        process =
            if let user {
                try ChildProcess(as: user, program, [], environment: environment)
            } else {
                try ChildProcess(program, environment: environment)
            }
    }

    /// Makes the process carry out a command, and returns the reply.
    func ask(_ command: String, within time: Duration = .seconds(60)) async throws -> String {
        let number = asked.withLock { asked in
            asked += 1
            return asked
        }
        try process.write("\(number) \(command)")
        let answer = try await process.line(within: time) { $0.hasPrefix("\(number) ") }
        return String(answer.dropFirst("\(number) ".count))
    }

    /// Makes the process carry out commands in order, and returns the different replies.
    func replies(_ commands: String...) async throws -> Set<String> {
        var replies: Set<String> = []
        for command in commands { replies.insert(try await ask(command)) }
        return replies
    }

    /// Registers, and returns the token.
    func register(_ kind: String, _ name: String) async throws -> Int32 {
        let answer = try await ask("\(kind) \(name)")
        try #require(answer.hasPrefix("token "))
        return try #require(Int32(answer.dropFirst("token ".count)))
    }

    func calls(_ token: Int32) -> Int { process.lines.count { $0 == "called \(token)" } }
}
