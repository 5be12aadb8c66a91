import Basics
import NotifyCenter
import Synchronization

// Paths that registrations monitor (Rules, a.13). This process watches them itself, with its own rights.
extension NotifyClient {
    /// Notifies this registration, and no other, when something changes at a path. Changes after the return are not
    /// missed.
    func monitor(
        _ token: CInt,
        _ path: String,
        _ flags: UInt32,
        by deadline: ContinuousClock.Instant? = nil
    ) throws(NotifyStatus) {
        let name = try registration(token).name
        guard NameScope(name.rawValue) != .process, path.utf8.first == UInt8(ascii: "/") else { throw .invalidRequest }
        guard !ProcessState.isDisabled else { throw .disabled }
        // Before the path is watched, so that the first change finds its registration.
        guard withTable({ $0.addMonitor(MonitorReport(token: token, path: path, flags: flags)) }) else {
            throw .invalidRequest
        }
        do throws(NotifyStatus) {
            try watch(token, FilePath(path), .wanted(flags), by: deadline)
        } catch {
            withTable { $0.removeMonitor(of: token) }
            throw error
        }
        // If another thread has cancelled the token since, it could not end this watch.
        if withTable({ $0[token] == nil }) { unmonitor(token) }
    }

    func unmonitor(_ token: CInt) { paths.withLock { $0 }?.remove(UInt64(token)) }

    private func watch(
        _ token: CInt,
        _ path: FilePath,
        _ wanted: PathEvents,
        by deadline: ContinuousClock.Instant?
    ) throws(NotifyStatus) {
        let outcome: PathWatcher.Outcome
        do throws(PathWatcher.Failure) {
            outcome = try watcher().addAndWait(UInt64(token), path, wanted, by: deadline)
        } catch {
            throw .failed
        }
        switch outcome {
        case .watched: break
        case .denied: throw .notAuthorized
        case .impossible: throw .failed
        }
    }

    /// Returns the watcher. It is made for the first path, because inotify instances are few.
    private func watcher() throws(PathWatcher.Failure) -> PathWatcher {
        try paths.withLock { paths throws(PathWatcher.Failure) in
            if let paths { return paths }
            let watcher = try PathWatcher { [weak self] tokens in
                for token in tokens { self?.fire(CInt(truncatingIfNeeded: token)) }
            }
            paths = watcher
            return watcher
        }
    }
}

/// A name that contains the path to monitor: `com.apple.system.notify.service.path:[FLAGS:]PATH` (Rules, a.4).
struct PathName: Equatable {
    private static let prefix = "com.apple.system.notify.service.path:"

    let path: String
    /// The flags of `notify_private.h`, as a decimal number or, after `0x`, as a hexadecimal one; 0 means all.
    let flags: UInt32

    /// `nil` for any other name.
    init?(_ name: NotificationName) {
        guard name.rawValue.hasPrefix(Self.prefix) else { return nil }
        let rest = name.rawValue.dropFirst(Self.prefix.count)
        guard let colon = rest.firstIndex(of: ":"), let flags = Self.number(rest[..<colon]) else {
            (path, flags) = (String(rest), 0)
            return
        }
        (path, self.flags) = (String(rest[rest.index(after: colon)...]), flags)
    }

    private static func number(_ text: Substring) -> UInt32? {
        text.hasPrefix("0x") ? UInt32(text.dropFirst(2), radix: 16) : UInt32(text)
    }
}
