import Glibc
import NotifyCenterTestKit

/// What this process may do to a device. A schedule does not depend on it, so that a seed gives the same one everywhere; what may not be done is
/// left out when the schedule is carried out.
enum Rights {
    /// Whether apps run as two users, the broker as a third, and hostile clients as a fourth. Every Linux has these.
    static let hasUsers = geteuid() == 0
    static let brokerUser: uid_t = hasUsers ? 1 : geteuid()
    static let secondUser: uid_t = 2
    /// Who has nothing to do with the device.
    static let stranger: uid_t = 65534
    /// Whether the broker has a file system of its own, which can be filled. In some containers root may not mount any.
    static let canMount = hasUsers && system("unshare --mount mount -t tmpfs tmpfs /tmp 2>/dev/null") == 0

    /// What is left out, for the report of a run; empty if nothing is.
    static var leftOut: [String] {
        (hasUsers ? [] : ["a second user of apps and hostile clients, because only root is several users"])
            + (canMount ? [] : ["a full disk, because this user may mount no file system"])
    }
}

extension ChildProcess {
    /// Starts a program that the package builds, as this user.
    ///
    /// - Parameters:
    ///   - options: of setpriv, where it is another user.
    static func start(
        _ name: String,
        _ arguments: [String],
        as user: uid_t,
        options: [String] = [],
        environment: [String: String] = [:]
    ) throws -> ChildProcess {
        let program = built(name)
        if user == geteuid() { return try ChildProcess(program, arguments, environment: environment) }
        let identity = ["--reuid=\(user)", "--regid=\(user)", "--clear-groups"] + options
        return try ChildProcess("setpriv", identity + [program] + arguments, environment: environment)
    }
}

/// A small file system for the broker's files, until this object goes. It has room for what a device's schedules leave behind.
final class SmallDisk {
    private let path: String

    /// - Parameter path: an empty directory.
    init(at path: String) async throws {
        let mount = try ChildProcess("mount", ["-t", "tmpfs", "-o", "size=16m,mode=0700", "tmpfs", path])
        guard await mount.exitStatus() == 0 else { throw Monitor.Violation("no disk: \(mount.errorText)") }
        self.path = path
    }

    // Files that are still open keep it until they are closed.
    deinit { umount2(path, CInt(MNT_DETACH)) }
}
