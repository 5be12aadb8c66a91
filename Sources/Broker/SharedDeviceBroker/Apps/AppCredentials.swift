import DBusTransport
package import DeviceConfiguration
import Dispatch
package import Glibc
import Synchronization

/// What is known of a program that calls the broker, by the word of bus and kernel.
///
/// What each of it is worth against another process of the same user: ``user``, ``unit`` and ``label`` are **proof**, because a process cannot
/// change its own. ``executable`` and ``flatpak`` are **hints**: a process can run the app's program and make it do something else, with a
/// debugger or a library loaded into it, or make a namespace with the file that names a Flatpak. Hints keep apps apart that mean well.
package struct AppCredentials: Sendable, Equatable {
    /// Whether a process is in a Flatpak's sandbox.
    package enum Sandbox: Sendable, Equatable {
        case absent
        /// In that of the Flatpak with this id.
        case flatpak(String)
        /// In one that does not say of which Flatpak it is, and why. Such a process is no app that is known: its program is a file of the sandbox's own.
        case unreadable(String)
    }

    /// The user that its process runs as, as the bus says it.
    package let user: uid_t
    /// The program that its process runs: absolute, without symbolic links, and the same file in the broker's own view of the file system.
    package let executable: String
    /// The unit of the system's service manager that its process is in; `nil` for a user's own units and for none.
    package let unit: String?
    /// The label of its security module, as the bus says it: for AppArmor `PROFILE (enforce)`.
    package let label: String?
    /// The sandbox that its process is in.
    package let sandbox: Sandbox

    package init(
        user: uid_t,
        executable: String,
        unit: String? = nil,
        label: String? = nil,
        sandbox: Sandbox = .absent
    ) {
        self.user = user
        self.executable = executable
        self.unit = unit
        self.label = label
        self.sandbox = sandbox
    }

    /// The id of the Flatpak that its process is in.
    package var flatpak: String? { if case .flatpak(let id) = sandbox { id } else { nil } }

    /// The AppArmor profile, where it is enforced: one that only complains confines nobody.
    package var enforcedProfile: String? {
        guard let label, label.hasSuffix(" (enforce)") else { return nil }
        return String(label.dropLast(" (enforce)".count))
    }
}

/// Looks at a process. It may take as long as the process likes: `/proc` leads into the file systems that the process has, and one of them may be its
/// own, or on a server that does not answer. ``ProcessLooks`` does it aside.
package enum ProcessView {
    package static let unseen = "a program that cannot be seen"

    /// What the kernel says of the process that the bus names. Nothing, where the process is not of the user that the bus names: then its
    /// number has passed to another.
    ///
    /// - Parameter label: the security label that the bus gave.
    package static func credentials(ofProcess process: UInt32?, user: uid_t, label: String?) -> AppCredentials {
        guard let process, users(of: process).contains(user) else {
            return AppCredentials(user: user, executable: unseen, label: label)
        }
        return AppCredentials(
            user: user,
            executable: executable(of: process) ?? unseen,
            unit: unit(of: process),
            label: label,
            sandbox: sandbox(of: process)
        )
    }

    /// The real, effective, saved and file system's user of a process; empty where there is none.
    private static func users(of process: UInt32) -> [uid_t] {
        let lines = read("/proc/\(process)/status", limit: 65_536)?.split(separator: "\n") ?? []
        let line = lines.first { $0.hasPrefix("Uid:") }
        return line?.split(separator: "\t").dropFirst().compactMap { uid_t($0) } ?? []
    }

    /// The path of the process's program; `nil` where it may not be seen, or is another file than the path leads to here: with a mount
    /// namespace of its own, a process can have any path for its program.
    ///
    /// An update removes the file of a program that runs. It then counts if the file was root's, so that no one else can have made it. A file that still
    /// has a name was not removed: its name ends like that of a removed one.
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

    /// The system's unit in a line of `/proc/PID/cgroup`; `nil` below a user's own service manager, where any process makes units.
    static func unit(inControlGroups text: String) -> String? {
        for line in text.split(separator: "\n") where line.hasPrefix("0::/") {
            let parts = line.dropFirst(4).split(separator: "/")
            guard !parts.contains(where: { $0.hasPrefix("user@") || $0.hasPrefix("user-") || $0 == "user.slice" })
            else {
                return nil
            }
            return parts.first { $0.hasSuffix(".service") || $0.hasSuffix(".scope") }.map(String.init)
        }
        return nil
    }

    private static func unit(of process: UInt32) -> String? {
        read("/proc/\(process)/cgroup", limit: 8192).flatMap(unit(inControlGroups:))
    }

    /// The application's name in a `.flatpak-info` file.
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
        // What the process has for its root directory. Where the kernel does not show it, it does not show the program either.
        let root = "/proc/\(process)/root"
        return destination(of: root) == nil ? .absent : sandbox(atRoot: root)
    }

    /// By the file that Flatpak puts at the root of each of its sandboxes. Whatever else is there in its place says that this is a sandbox, too: a
    /// process that could be a Flatpak's must not pass for a program of the machine.
    static func sandbox(atRoot root: String) -> AppCredentials.Sandbox {
        do throws(Unreadable) {
            guard let text = try text(of: "\(root)/.flatpak-info", limit: 65_536) else { return .absent }
            return flatpak(inInformation: text).map { .flatpak($0) } ?? .unreadable("it names no application")
        } catch {
            return .unreadable(error.reason)
        }
    }

    private static func destination(of link: String) -> String? {
        withUnsafeTemporaryAllocation(of: CChar.self, capacity: Int(PATH_MAX)) { buffer in
            guard let start = buffer.baseAddress else { return nil }
            let length = readlink(link, start, buffer.count)
            guard length > 0 else { return nil }
            return start.withMemoryRebound(to: UInt8.self, capacity: length) {
                String(decoding: UnsafeBufferPointer(start: $0, count: length), as: UTF8.self)
            }
        }
    }

    private static func read(_ path: String, limit: Int) -> String? { try? text(of: path, limit: limit) }

    private struct Unreadable: Error { let reason: String }

    /// A regular file's text, which has fewer bytes than the limit. It is another program's: it may be a pipe or a link.
    ///
    /// - Returns: `nil` where there is no such file, or its process has ended.
    private static func text(of path: String, limit: Int) throws(Unreadable) -> String? {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
        guard descriptor >= 0 else {
            guard errno != ENOENT && errno != ESRCH else { return nil }
            throw Unreadable(reason: String(cString: strerror(errno)))
        }
        defer { close(descriptor) }
        var information = stat()
        guard fstat(descriptor, &information) == 0, information.st_mode & S_IFMT == S_IFREG else {
            throw Unreadable(reason: "it is no regular file")
        }
        var bytes = [UInt8](repeating: 0, count: limit)
        var count = 0
        while count < limit {
            let part = bytes.withUnsafeMutableBytes { Glibc.read(descriptor, $0.baseAddress! + count, limit - count) }
            if part == 0 { return String(decoding: bytes[..<count], as: UTF8.self) }
            if part > 0 {
                count += part
            } else if errno == ESRCH {
                return nil
            } else if errno != EINTR {
                throw Unreadable(reason: String(cString: strerror(errno)))
            }
        }
        throw Unreadable(reason: "it has \(limit) bytes or more")
    }
}

/// Looks at processes on threads of its own, so that nobody but the process's own user waits for one whose file systems do not answer.
final class ProcessLooks: Sendable {
    fileprivate final class Look: Sendable {
        let body: @Sendable () -> AppCredentials
        private let seen: Locked<(@Sendable (AppCredentials?) -> Void)?>

        init(_ body: @escaping @Sendable () -> AppCredentials, _ seen: @escaping @Sendable (AppCredentials?) -> Void) {
            self.body = body
            self.seen = Locked(seen)
        }

        var isOver: Bool { seen.withLock { $0 == nil } }

        /// The first call counts.
        func end(_ credentials: AppCredentials?) { seen.withLock { $0.take() }?(credentials) }
    }

    fileprivate struct State {
        /// What waits of each user for a thread.
        var waiting: [uid_t: [Look]] = [:]
        /// How many threads look for each user.
        var threads: [uid_t: Int] = [:]
        var threadCount = 0
    }

    private let state = Locked(State())
    private let patience: Duration
    /// How many threads look for one user, so that a stuck process keeps none of the user's other processes waiting; and how many look for all users
    /// together.
    fileprivate static let (threadsOfUser, mostThreads) = (4, 64)
    /// How many looks of one user wait; beyond that the oldest is given up.
    private static let mostWaiting = 256

    init(patience: Duration = .seconds(5)) { self.patience = patience }

    /// Looks, or gives up when the time is over: a look that is stuck keeps its thread.
    ///
    /// - Parameter seen: called once, on another thread: with what was seen, or with `nil` where the time is over.
    func look(
        of user: uid_t,
        _ body: @escaping @Sendable () -> AppCredentials,
        seen: @escaping @Sendable (AppCredentials?) -> Void
    ) {
        let look = Look(body, seen)
        let (isNew, dropped) = state.withLock { state -> (Bool, Look?) in
            state.waiting[user, default: []].removeAll(where: \.isOver)
            state.waiting[user, default: []].append(look)
            // Each holds a descriptor of its process, also where the connection is gone.
            let isFull = state.waiting[user]?.count ?? 0 > Self.mostWaiting
            let dropped = isFull ? state.waiting[user]?.removeFirst() : nil
            // Administrators wait for no other user.
            let hasRoom = state.threadCount < Self.mostThreads || Callers.isAdministrator(user)
            guard state.threads[user] ?? 0 < Self.threadsOfUser, hasRoom else {
                return (false, dropped)
            }
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
            // Others have come while there were as many threads as there may be.
            user = state.withLock { $0.takeOver() }
        }
    }
}

extension ProcessLooks.State {
    /// The next look of the user's; where there is none, the thread ends.
    fileprivate mutating func next(of user: uid_t) -> ProcessLooks.Look? {
        guard let first = waiting[user]?.first else {
            endThread(of: user)
            return nil
        }
        waiting[user]?.removeFirst()
        return first
    }

    /// A user whose looks no thread takes.
    fileprivate mutating func takeOver() -> uid_t? {
        // The thread of an administrator may be one of more.
        guard threadCount < ProcessLooks.mostThreads,
            let user = waiting.first(where: { threads[$0.key] == nil && !$0.value.isEmpty })?.key
        else { return nil }
        (threads[user], threadCount) = (1, threadCount + 1)
        return user
    }

    fileprivate mutating func endThread(of user: uid_t) {
        threadCount -= 1
        threads[user, default: 1] -= 1
        guard threads[user] == 0 else { return }
        threads[user] = nil
        if waiting[user]?.isEmpty == true { waiting[user] = nil }
    }
}

/// An app that takes part.
package struct AppIdentity: Sendable, Equatable {
    /// What the broker keeps the app's entries under. A manifest's identifier; without a manifest a text that also has the
    /// program and the user, so that no such app can be mistaken for an enrolled one.
    package let identifier: String
    /// The app's manifest, if it is enrolled.
    package var manifest: AppManifest?

    /// Whether the app has a manifest.
    package var isEnrolled: Bool { manifest != nil }

    /// The app as this caller runs it. An adapter stands for the user whose data it deletes, also where root runs it.
    func participant(of caller: uid_t) -> Participant {
        Participant(app: identifier, user: manifest?.cleanup?.user.number ?? caller)
    }
}
