import Basics
import DBus
import FoundationEssentials
import Glibc

/// A control group, given by its path in systemd's hierarchies. All calls read files of the kernel, which respond at
/// once.
struct ControlGroup: Sendable {
    /// The possible mount points of the hierarchies.
    private static let mounts = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd"]
    /// The maximum number of processes to watch at a time. Each needs a descriptor.
    private static let mostWatched = 64

    /// Its directory in each hierarchy.
    private let directories: [String]

    /// - Parameter group: the path, or an empty string if there is none. The root counts as none, because it is shared.
    init(_ group: String) {
        directories = group.hasPrefix("/") && group != "/" ? Self.mounts.map { $0 + group } : []
    }

    /// Whether the group and its descendants have no process. A group that does not exist is empty.
    func isEmpty() throws(AdapterFailure) -> Bool {
        for directory in directories {
            // In version 2 of the hierarchy the kernel itself says whether a group has processes.
            if let events = try Self.read("\(directory)/cgroup.events") {
                guard events.split(separator: "\n").contains("populated 0") else { return false }
            } else if try !Self.processes(directory).isEmpty {
                return false
            }
        }
        return true
    }

    /// The processes of the group and its descendants.
    func processes() throws(AdapterFailure) -> Set<pid_t> {
        var found: Set<pid_t> = []
        for directory in directories { found.formUnion(try Self.processes(directory)) }
        return found
    }

    /// Blocks this thread until the group is empty or the deadline has passed.
    func waitUntilEmpty(until deadline: ContinuousClock.Instant) throws(AdapterFailure) {
        while ContinuousClock.now < deadline, try !isEmpty() {
            for process in try descriptors(of: processes().prefix(Self.mostWatched))
            where !process.hasEnded(by: deadline) { return }
        }
    }

    /// Kills the processes of the group and its descendants. Where the kernel supports it (Linux 5.14, version 2) this
    /// includes processes that are started during the call.
    func kill() throws(AdapterFailure) {
        for directory in directories {
            let file = open("\(directory)/cgroup.kill", O_WRONLY | O_CLOEXEC)
            guard file >= 0 else { continue }
            _ = write(file, "1", 1)
            close(file)
        }
        let processes = Array(try processes())
        for first in stride(from: 0, to: processes.count, by: Self.mostWatched) {
            for process in try descriptors(of: processes[first...].prefix(Self.mostWatched)) { process.send(SIGKILL) }
        }
    }

    private func descriptors(of processes: some Sequence<pid_t>) throws(AdapterFailure) -> [ProcessDescriptor] {
        var found: [ProcessDescriptor] = []
        for process in processes where process > 1 {
            if let descriptor = ProcessDescriptor(process) {
                found.append(descriptor)
            } else if errno != ESRCH {
                throw Self.failure("the process \(process)", errno)
            }
        }
        // The number may have been reused before its descriptor was opened; the new process is not in the group.
        let present = try self.processes()
        return found.filter { present.contains($0.identifier) && !$0.hasEnded }
    }

    // MARK: Reading

    private static func processes(_ directory: String) throws(AdapterFailure) -> [pid_t] {
        var found = try (read("\(directory)/cgroup.procs") ?? "").split(separator: "\n").compactMap { pid_t($0) }
        for name in try subgroups(directory) { found += try processes("\(directory)/\(name)") }
        return found
    }

    private static func subgroups(_ directory: String) throws(AdapterFailure) -> [String] {
        do {
            return try FileManager.default.contentsOfDirectory(atPath: directory).filter { name in
                var status = stat()
                return stat("\(directory)/\(name)", &status) == 0 && status.st_mode & S_IFMT == S_IFDIR
            }
        } catch {
            guard error.code != ENOENT else { return [] }
            throw failure(directory, error.code)
        }
    }

    /// - Returns: the file's text; `nil` if the group is gone, has another version, or is a threaded group, whose
    ///   processes belong to a parent group.
    private static func read(_ path: String) throws(AdapterFailure) -> String? {
        do {
            return try String(contentsOfFile: path, encoding: .utf8)
        } catch {
            guard ![ENOENT, ENODEV, ENOTDIR, EOPNOTSUPP].contains(error.code) else { return nil }
            throw failure(path, error.code)
        }
    }

    private static func failure(_ what: String, _ code: CInt) -> AdapterFailure {
        AdapterFailure(
            "see which processes are left, by \(what): \(String(cString: strerror(code)))",
            remedy: "The adapter needs to read /sys/fs/cgroup"
        )
    }
}
