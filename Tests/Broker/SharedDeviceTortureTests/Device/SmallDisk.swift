import Glibc
import NotifyCenterTestKit

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
