import DBusTransport
import FoundationEssentials
import Glibc

/// A control group of the kernel's, by its path in the hierarchies that systemd uses. All of it waits for files of the kernel, which answer at once.
struct ControlGroup: Sendable {
    /// Where the hierarchies may be mounted.
    private static let mounts = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd"]
    /// How many processes are watched at a time, each by a descriptor.
    private static let mostWatched = 64

    /// Its directories, one in each hierarchy that has it.
    private let directories: [String]

    /// - Parameter group: empty where there is none. The root is nobody's own.
    init(_ group: String) {
        directories = group.hasPrefix("/") && group != "/" ? Self.mounts.map { $0 + group } : []
    }

    /// Whether no process is in it or below it. A group that is gone is empty.
    ///
    /// - Throws: ``AdapterFailure`` where the kernel does not say.
    func isEmpty() throws(AdapterFailure) -> Bool {
        for directory in directories {
            // Of version 2, where the kernel counts.
            if let events = try Self.read("\(directory)/cgroup.events") {
                guard events.split(separator: "\n").contains("populated 0") else { return false }
            } else if try !Self.processes(directory).isEmpty {
                return false
            }
        }
        return true
    }

    /// The processes in it and below it.
    func processes() throws(AdapterFailure) -> Set<pid_t> {
        var found: Set<pid_t> = []
        for directory in directories { found.formUnion(try Self.processes(directory)) }
        return found
    }

    /// Waits on this thread until it is empty, or time is over.
    func waitUntilEmpty(until deadline: ContinuousClock.Instant) throws(AdapterFailure) {
        while ContinuousClock.now < deadline, try !isEmpty() {
            for process in try descriptors(of: processes().prefix(Self.mostWatched))
            where !process.hasEnded(by: deadline) { return }
        }
    }

    /// Kills what is in it and below it, what is started meanwhile, too, where the kernel can (Linux 5.14, version 2).
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
        // A number may have passed to another process before its descriptor was opened; that one is not in the group.
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

    /// - Returns: the file's text; `nil` if there is none: the group is gone, of another version, or one for threads alone, whose processes are
    ///   those of a group above it.
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
            "see which processes are left, by",
            what,
            String(cString: strerror(code)),
            remedy: "The adapter needs to read /sys/fs/cgroup"
        )
    }
}
