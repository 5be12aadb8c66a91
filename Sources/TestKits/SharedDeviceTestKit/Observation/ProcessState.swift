import Foundation
import Glibc

/// What the kernel says of a process.
public enum ProcessState {
    /// The letter of the state, as proc(5) has it: `R`, `S`, `T` for stopped, `Z` for ended and not collected; `nil` where there is no such
    /// process.
    public static func letter(of identifier: Int32) -> Character? {
        guard let text = try? String(contentsOfFile: "/proc/\(identifier)/stat", encoding: .utf8) else { return nil }
        // The name before it is in parentheses, and may have some of its own.
        return text.split(separator: ")").last?.first { $0 != " " }
    }

    /// Whether it is stopped (SIGSTOP).
    public static func isStopped(_ identifier: Int32) -> Bool { letter(of: identifier) == "T" }

    /// Whether it lives and was started with this variable in its environment.
    static func isAlive(_ identifier: Int32, withEnvironment variable: String) -> Bool {
        guard let letter = letter(of: identifier), letter != "Z" else { return false }
        guard let environment = FileManager.default.contents(atPath: "/proc/\(identifier)/environ") else {
            return false
        }
        return environment.split(separator: 0).contains { Array($0) == Array(variable.utf8) }
    }
}
