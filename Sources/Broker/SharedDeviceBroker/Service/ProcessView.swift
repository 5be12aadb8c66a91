import Basics
package import BrokerCore
import Dispatch
package import Glibc
import Synchronization

/// Inspects a process, on the threads of ``ProcessLooks``. This may block indefinitely: `/proc` leads into file systems
/// that the process may implement, or that are on a server that does not respond.
package enum ProcessView {
    package static let unseen = "a program that cannot be seen"

    /// The kernel's information about the process that the bus names; unseen if the process id has been reused.
    package static func credentials(ofProcess process: UInt32?, user: uid_t, label: String?) -> AppCredentials {
        guard let process, users(of: process).contains(user) else {
            return AppCredentials(user: user, executable: unseen, label: label)
        }
        return AppCredentials(
            user: user,
            executable: executable(of: process) ?? unseen,
            unit: read("/proc/\(process)/cgroup", limit: 8192).flatMap(unit(inControlGroups:)),
            label: label,
            sandbox: sandbox(of: process)
        )
    }

    /// The real, effective, saved and file-system user of a process; empty if there is no such process.
    private static func users(of process: UInt32) -> [uid_t] {
        let lines = read("/proc/\(process)/status", limit: 65_536)?.split(separator: "\n") ?? []
        let line = lines.first { $0.hasPrefix("Uid:") }
        return line?.split(separator: "\t").dropFirst().compactMap { uid_t($0) } ?? []
    }

    /// The path of the process's program; `nil` if it cannot be seen, or if the path leads to another file here: with
    /// its own mount namespace, a process can have any path.
    ///
    /// An update removes the file of a running program. The path then counts if the file belonged to root, so that no
    /// other user can have made it. A file that still has a link was not removed: “ (deleted)” is part of its name.
    static func executable(of process: UInt32) -> String? {
        let link = "/proc/\(process)/exe"
        guard let target = destination(of: link) else { return nil }
        var (running, here) = (stat(), stat())
        guard stat(link, &running) == 0 else { return nil }
        if stat(target, &here) == 0, here.st_dev == running.st_dev, here.st_ino == running.st_ino { return target }
        let mark = " (deleted)"
        guard target.hasSuffix(mark), running.st_nlink == 0, running.st_uid == 0,
            running.st_mode & (S_IWGRP | S_IWOTH) == 0
        else { return nil }
        return String(target.dropLast(mark.count))
    }

    /// The system unit in `/proc/PID/cgroup`; `nil` below a user's service manager, where any process can create units.
    static func unit(inControlGroups text: String) -> String? {
        for line in text.split(separator: "\n") where line.hasPrefix("0::/") {
            let parts = line.dropFirst(4).split(separator: "/")
            guard !parts.contains(where: { $0.hasPrefix("user@") || $0.hasPrefix("user-") || $0 == "user.slice" })
            else { return nil }
            return parts.first { $0.hasSuffix(".service") || $0.hasSuffix(".scope") }.map(String.init)
        }
        return nil
    }

    static func flatpak(inInformation text: String) -> String? {
        var isApplication = false
        for line in text.split(separator: "\n") {
            if line.hasPrefix("[") {
                isApplication = line == "[Application]"
            } else if isApplication, line.hasPrefix("name=") {
                return String(line.dropFirst("name=".count))
            }
        }
        return nil
    }

    private static func sandbox(of process: UInt32) -> AppCredentials.Sandbox {
        // The root directory of the process. If the kernel does not show it, it does not show the program either.
        let root = "/proc/\(process)/root"
        return destination(of: root) == nil ? .absent : sandbox(atRoot: root)
    }

    /// Reads the file that Flatpak puts at the root of each sandbox. Anything else at that path also counts as a
    /// sandbox: a process that could be in a Flatpak must not pass for a program of the machine.
    static func sandbox(atRoot root: String) -> AppCredentials.Sandbox {
        do throws(Problem) {
            guard let text = try text(of: "\(root)/.flatpak-info", limit: 65_536) else { return .absent }
            return flatpak(inInformation: text).map { .flatpak($0) } ?? .unreadable("it names no application")
        } catch {
            return .unreadable(error.description)
        }
    }

    private static func destination(of link: String) -> String? {
        var buffer = [CChar](repeating: 0, count: Int(PATH_MAX))
        let length = readlink(link, &buffer, buffer.count)
        return length > 0 ? String(decoding: buffer[..<length].map(UInt8.init(bitPattern:)), as: UTF8.self) : nil
    }

    private static func read(_ path: String, limit: Int) -> String? { try? text(of: path, limit: limit) }

    /// Reads a regular file; the path may be another program's. `nil` if it is missing, or if its process has ended.
    private static func text(of path: String, limit: Int) throws(Problem) -> String? {
        do throws(FileReadError) {
            let file = try ReadableFile(path, followsLink: false)
            if try file.isRegular() { return String(decoding: try file.content(atMost: limit), as: UTF8.self) }
        } catch {
            if error == .system(ENOENT) || error == .system(ESRCH) { return nil }
            throw Problem(error.reason)
        }
        throw Problem("it is no regular file")
    }
}

/// Inspects processes on its own threads, so that an unresponsive file system only delays the process's own user.
final class ProcessLooks: Sendable {
    private final class Look: Sendable {
        let body: @Sendable () -> AppCredentials
        private let seen: Locked<(@Sendable (AppCredentials?) -> Void)?>

        init(_ body: @escaping @Sendable () -> AppCredentials, _ seen: @escaping @Sendable (AppCredentials?) -> Void) {
            self.body = body
            self.seen = Locked(seen)
        }

        var isOver: Bool { seen.withLock { $0 == nil } }

        /// Only the first call has an effect.
        func end(_ credentials: AppCredentials?) { seen.withLock { $0.take() }?(credentials) }
    }

    private struct State {
        /// The queued looks of each user.
        var waiting: [uid_t: [Look]] = [:]
        /// The number of threads that work for each user.
        var threads: [uid_t: Int] = [:]
        var threadCount = 0

        /// The next look of the user; without one, the thread ends.
        mutating func next(of user: uid_t) -> Look? {
            guard let first = waiting[user]?.first else {
                endThread(of: user)
                return nil
            }
            waiting[user]?.removeFirst()
            return first
        }

        /// Picks a user with queued looks and no thread.
        mutating func takeOver() -> uid_t? {
            // An administrator's thread may exceed the maximum.
            guard threadCount < mostThreads,
                let user = waiting.first(where: { threads[$0.key] == nil && !$0.value.isEmpty })?.key
            else { return nil }
            (threads[user], threadCount) = (1, threadCount + 1)
            return user
        }

        mutating func endThread(of user: uid_t) {
            threadCount -= 1
            threads[user, default: 1] -= 1
            guard threads[user] == 0 else { return }
            threads[user] = nil
            if waiting[user]?.isEmpty == true { waiting[user] = nil }
        }
    }

    private let state = Locked(State())
    private let patience: Duration
    /// The maximum of threads of one user, because a process may be stuck, and of all users.
    private static let (threadsOfUser, mostThreads) = (4, 64)
    /// The maximum of queued looks of one user. Beyond it, the oldest is abandoned.
    private static let mostWaiting = 256

    init(patience: Duration = .seconds(5)) { self.patience = patience }

    /// Inspects a process, and calls `seen` once on another thread; with `nil` after a timeout, when the thread is
    /// stuck.
    func look(
        of user: uid_t,
        _ body: @escaping @Sendable () -> AppCredentials,
        seen: @escaping @Sendable (AppCredentials?) -> Void
    ) {
        let look = Look(body, seen)
        let (isNew, dropped) = state.withLock { state -> (Bool, Look?) in
            state.waiting[user, default: []].removeAll(where: \.isOver)
            state.waiting[user, default: []].append(look)
            // Each look holds a descriptor of its process, even after the connection has ended.
            let isFull = state.waiting[user]?.count ?? 0 > Self.mostWaiting
            let dropped = isFull ? state.waiting[user]?.removeFirst() : nil
            // Administrators do not wait for other users.
            let hasRoom = state.threadCount < Self.mostThreads || Callers.isAdministrator(user)
            guard state.threads[user] ?? 0 < Self.threadsOfUser, hasRoom else { return (false, dropped) }
            state.threads[user, default: 0] += 1
            state.threadCount += 1
            return (true, dropped)
        }
        dropped?.end(nil)
        let end = DispatchTime.now() + .milliseconds(Int(patience / .milliseconds(1)))
        DispatchQueue.global().asyncAfter(deadline: end) { [weak look] in look?.end(nil) }
        guard isNew, QuietThread.start("process view", { self.lookOnThisThread(of: user) }) == nil else { return }
        state.withLock { $0.endThread(of: user) }
    }

    private func lookOnThisThread(of user: uid_t) {
        var user: uid_t? = user
        while let current = user {
            while let look = state.withLock({ $0.next(of: current) }) {
                if !look.isOver { look.end(look.body()) }
            }
            // Serves users whose looks arrived while the maximum of threads was running.
            user = state.withLock { $0.takeOver() }
        }
    }
}
