import CLinux
import Glibc

/// The environment of this process, for all libraries of the package.
///
/// A process with more rights than its user (set-user-ID, set-group-ID, file capabilities) gets its environment from a
/// caller with fewer rights. Its environment counts as empty.
public enum ProcessEnvironment {
    /// Whether the process has more rights than the user who started it (`AT_SECURE`).
    public static let isIgnored = CLinux_isSecureExecution() != 0

    /// The value of a variable; `nil` if it is unset or empty, or the environment is ignored.
    public static func value(_ name: String) -> String? {
        guard let value = CLinux_secureEnvironment(name), value.pointee != 0 else { return nil }
        return String(cString: value)
    }

    /// The user's home directory: `HOME`, or else the entry in the user database.
    public static var homeDirectory: String? { value("HOME") ?? listedHomeDirectory }

    private static var listedHomeDirectory: String? {
        withUnsafeTemporaryAllocation(of: CChar.self, capacity: 16_384) { buffer in
            var entry = passwd()
            var found: UnsafeMutablePointer<passwd>?
            guard getpwuid_r(geteuid(), &entry, buffer.baseAddress!, buffer.count, &found) == 0, found != nil,
                let path = entry.pw_dir
            else { return nil }
            return String(cString: path)
        }
    }
}
