import Glibc
@_spi(Extensions) import NotifyCenterTestKit

/// The rights of this process over a device. Schedules do not depend on them, so that a seed always gives the same
/// schedule. Steps that are not permitted are skipped.
enum Rights {
    /// Whether apps run as two users, the broker as a third and hostile clients as a fourth. These users exist on every
    /// Linux system.
    static let hasUsers = geteuid() == 0
    static let brokerUser: uid_t = hasUsers ? 1 : geteuid()
    static let secondUser: uid_t = 2
    /// The setpriv(1) options that give the broker the capabilities that its unit names, and no other rights.
    static let brokerOptions = {
        let capabilities = "+sys_ptrace,+dac_read_search"
        return [
            "--no-new-privs", "--inh-caps=\(capabilities)", "--ambient-caps=\(capabilities)",
            "--bounding-set=-all,\(capabilities)",
        ]
    }()
    /// A user without any app on the device.
    static let stranger: uid_t = 65534
    /// Whether the broker has its own file system, which can be filled. In some containers even root may not mount one.
    static let canMount = hasUsers && system("unshare --mount mount -t tmpfs tmpfs /tmp 2>/dev/null") == 0

    /// The skipped parts, for the report of a run; empty if there are none.
    static var leftOut: [String] {
        (hasUsers ? [] : ["a second user of apps and hostile clients, because only root can act as several users"])
            + (canMount ? [] : ["a full disk, because this user may mount no file system"])
    }
}

extension ChildProcess {
    /// Starts a program of the package as this user.
    ///
    /// - Parameters:
    ///   - options: options of setpriv, which is used for another user.
    static func start(
        _ name: String,
        _ arguments: [String],
        as user: uid_t,
        options: [String] = [],
        environment: [String: String] = [:]
    ) throws -> ChildProcess {
        let program = built(name)
        if user == geteuid() { return try ChildProcess(program, arguments, environment: environment) }
        return try ChildProcess("setpriv", identity(user) + options + [program] + arguments, environment: environment)
    }

    /// The error output, if the process has ended by itself.
    var failure: String? {
        guard !isRunning else { return nil }
        // The last output may still be in flight.
        waitUntilExit()
        return errorText
    }

    /// The lines of the error output so far.
    var log: [String] { errorText.split(separator: "\n").map(String.init) }

    /// Kills the process, and waits for its end.
    func end() {
        kill()
        waitUntilExit()
    }
}

/// A small file system for the broker's files, which is unmounted on release. It has room for the data of all schedules
/// of a device.
final class SmallDisk {
    private let path: String

    /// - Parameter path: an empty directory.
    init(at path: String) async throws {
        let mount = try ChildProcess("mount", ["-t", "tmpfs", "-o", "size=16m,mode=0700", "tmpfs", path])
        guard await mount.exitStatus() == 0 else { throw Monitor.Violation("no disk: \(mount.errorText)") }
        self.path = path
    }

    // Files that are still open keep the file system alive until they are closed.
    deinit { umount2(path, CInt(MNT_DETACH)) }
}

/// A file that fills the disk of a directory.
struct Ballast {
    private let path: String

    init(in directory: String) { path = "\(directory)/ballast" }

    func fillDisk() throws {
        let file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o600)
        guard file >= 0 else { throw Device.Unexpected(description: "no ballast: \(String(cString: strerror(errno)))") }
        defer { close(file) }
        let block = [UInt8](repeating: 7, count: 4096)
        while write(file, block, block.count) > 0 {}
    }

    /// Returns whether the disk had been filled.
    @discardableResult
    func remove() -> Bool { unlink(path) == 0 }
}
