import Foundation
import Glibc

/// Remembers across restarts when somebody used the device last: the time stamp of an empty file. A power cut loses the last seconds, so that
/// the sign-out comes a little early.
struct ActivityFile: Sendable {
    private let path: String

    init(directory: String) { path = "\(directory)/last-activity" }

    /// `nil` where nobody knows.
    var date: Date? {
        var information = stat()
        guard lstat(path, &information) == 0 else { return nil }
        let stamp = information.st_mtim
        return Date(timeIntervalSince1970: Double(stamp.tv_sec) + Double(stamp.tv_nsec) / 1e9)
    }

    /// - Returns: the reason if it cannot be written, for the log; `nil` if it was.
    func write(_ date: Date) -> String? {
        let file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard file >= 0 else { return "\(path): \(String(cString: strerror(errno)))" }
        defer { close(file) }
        let seconds = date.timeIntervalSince1970.rounded(.down)
        let rest = Int((date.timeIntervalSince1970 - seconds) * 1e9)
        let stamp = timespec(tv_sec: Int(seconds), tv_nsec: rest)
        guard futimens(file, [stamp, stamp]) == 0 else { return "\(path): \(String(cString: strerror(errno)))" }
        return nil
    }
}
