import Basics
import DBus
import FoundationEssentials
import Glibc
@_spi(Extensions) import SharedDevice

/// A snapshot of the machine's processes, read from `/proc`. An unreadable process is an error, because an overlooked
/// process would keep the user's data after the receipt.
struct ProcessTree {
    struct Entry: Equatable {
        let identifier: pid_t
        let parent: pid_t
        /// Whether all of its threads have ended and its parent has not reaped it.
        let hasEnded: Bool
        /// The start time in clock ticks. Together with the number it identifies the process.
        let start: UInt64
    }

    /// How to find processes of an app that have no known ancestor.
    enum Mark: Sendable {
        /// The variable ``ProcessTree/mark`` has this value.
        case variable(String)
        /// As `variable`, or the path is among their arguments and in those of no other program. Browsers overwrite the
        /// environment of their processes, including the first.
        case path(String)
        /// As `variable`, or these consecutive words are among their arguments: the words by which a program keeps all
        /// its data in one place.
        case words([String], variable: String)
        /// The absolute path of their executable.
        case executable(String)
        /// The identifier of the Flatpak whose sandbox they are in.
        case flatpak(String)
    }

    /// The environment variable of every process that an adapter starts.
    static let mark = "SHARED_DEVICE_ADAPTER"
    /// The most rereads of the list, for a machine on which processes start all the time.
    static let mostLooks = 100
    /// The most processes to watch at a time. Each needs a descriptor.
    private static let mostWatched = 64

    let entries: [pid_t: Entry]
    private let root: String

    /// The user's running processes without this one.
    let own: Set<pid_t>
    /// The processes in ``own`` that bear the mark, without the ancestors of this process.
    let marked: Set<pid_t>

    init(marked value: String, user: UInt32, root: String = "/proc") throws(AdapterFailure) {
        try self.init(by: .variable(value), user: user, root: root)
    }

    /// Blocks this thread for at most twelve times `patience`.
    ///
    /// - Parameters:
    ///   - mark: `nil` matches no process.
    ///   - user: the user whose processes are checked for the mark.
    ///   - root: the mount point of procfs.
    ///   - patience: the read fails once a process has not answered for one to two times this long.
    init(
        by mark: Mark?,
        user: UInt32,
        root: String = "/proc",
        patience: Duration = .seconds(5)
    ) throws(AdapterFailure) {
        self = try ProcessScan.run(of: user, patience: patience) { scan throws(AdapterFailure) in
            try ProcessTree(by: mark, user, root, scan)
        }
    }

    private init(by mark: Mark?, _ user: UInt32, _ root: String, _ scan: ProcessScan) throws(AdapterFailure) {
        self.root = root
        var own: Set<pid_t> = []
        var marked: Set<pid_t> = []
        var entries: [pid_t: Entry] = [:]
        var seen: Set<pid_t> = []
        for _ in 0..<Self.mostLooks {
            // A process may start another and end before it is read. Rereads until the list has no new number.
            let numbers: [pid_t]
            do throws(Unreadable) { numbers = try Self.numbers(in: root) } catch { throw error.failure }
            let fresh = Set(numbers).subtracting(seen)
            if fresh.isEmpty { break }
            for number in fresh {
                guard let entry = try Self.entry(number, root) else { continue }
                entries[number] = entry
                guard !entry.hasEnded, number != getpid(), try Self.users(of: number, root).contains(user) else {
                    continue
                }
                own.insert(number)
                guard let mark else { continue }
                let process = ProcessScan.Process(identifier: number, start: entry.start)
                let isMarked = try scan.reads(process) { () throws(AdapterFailure) in
                    try Self.bears(mark, number, user, root)
                }
                if isMarked { marked.insert(number) }
            }
            seen.formUnion(fresh)
        }
        self.entries = entries
        self.own = own
        // An ancestor of this process may have the command's words among its arguments. Ending it would end this
        // adapter.
        self.marked = marked.subtracting(Self.ancestors(of: getpid(), entries))
        guard entries[getpid()] != nil else {
            throw Self.failure(root, "it does not show this process")
        }
    }

    private static func ancestors(of process: pid_t, _ entries: [pid_t: Entry]) -> Set<pid_t> {
        var found: Set<pid_t> = []
        var next = entries[process]?.parent
        // Numbers that were read at different moments may form a cycle.
        while let number = next, let entry = entries[number], found.insert(number).inserted { next = entry.parent }
        return found
    }

    /// The running processes below `roots`, without those below `excluded`.
    func descendants(of roots: Set<pid_t>, excluding excluded: Set<pid_t>) -> Set<pid_t> {
        let children = Dictionary(grouping: entries.values) { $0.parent }
        var found: Set<pid_t> = []
        var open = Array(roots)
        while let parent = open.popLast() {
            for child in children[parent] ?? [] where !excluded.contains(child.identifier) {
                open.append(child.identifier)
                if !child.hasEnded { found.insert(child.identifier) }
            }
        }
        return found
    }

    /// A descriptor of the process in this snapshot; `nil` if it has ended.
    func descriptor(of identifier: pid_t) throws(AdapterFailure) -> ProcessDescriptor? {
        guard let entry = entries[identifier] else { return nil }
        guard let descriptor = ProcessDescriptor(identifier) else {
            guard errno != ESRCH else { return nil }
            throw Self.failure("the process \(identifier)", String(cString: strerror(errno)))
        }
        // The number may have been reused before the descriptor was opened.
        guard let now = try Self.entry(identifier, root), now.start == entry.start else { return nil }
        return now.hasEnded ? nil : descriptor
    }

    /// The processes that a scan found, with the snapshot that they are from.
    typealias Sight = (tree: ProcessTree, processes: Set<pid_t>)

    /// Stops the processes with SIGSTOP until a scan finds no new one, then signals all of them and blocks this thread
    /// until they end. Without the SIGSTOP, a process that is about to end could start a child that the scan cannot
    /// find: browsers overwrite the environment of their processes.
    ///
    /// - Returns: whether no process is left. The final scan runs after the wait, even past the deadline.
    static func end(
        by signal: Int32,
        until deadline: ContinuousClock.Instant,
        _ look: () throws(AdapterFailure) -> Sight
    ) throws(AdapterFailure) -> Bool {
        var sight = try look()
        var halted: Set<pid_t> = []
        do throws(AdapterFailure) {
            for _ in 0..<mostLooks {
                let fresh = sight.processes.subtracting(halted)
                if fresh.isEmpty { break }
                halted.formUnion(fresh)
                for process in fresh { try sight.tree.descriptor(of: process)?.send(SIGSTOP) }
                sight = try look()
            }
            if sight.processes.isEmpty { return true }
            try sight.tree.end(sight.processes, by: signal, until: deadline)
        } catch {
            // A stopped process may be serving the memory of a process that the scan reads.
            for process in halted { try? sight.tree.descriptor(of: process)?.send(SIGCONT) }
            throw error
        }
        return try look().processes.isEmpty
    }

    private func end(
        _ processes: Set<pid_t>,
        by signal: Int32,
        until deadline: ContinuousClock.Instant
    ) throws(AdapterFailure) {
        var watched: [ProcessDescriptor] = []
        for process in processes {
            guard let descriptor = try descriptor(of: process) else { continue }
            descriptor.send(signal)
            descriptor.send(SIGCONT)
            // A program may start processes without end. The next scan finds the rest.
            if watched.count < Self.mostWatched { watched.append(descriptor) }
        }
        for descriptor in watched where !descriptor.hasEnded(by: deadline) { break }
    }

    func collectAdopted() {
        let own = HelperProcess.own
        for entry in entries.values where entry.hasEnded && entry.parent == getpid() && !own.contains(entry.identifier)
        {
            waitpid(entry.identifier, nil, WNOHANG)
        }
    }

    static func describe(_ process: pid_t) -> String {
        let name = (try? read("/proc/\(process)/comm"))?.prefix { $0 != UInt8(ascii: "\n") } ?? []
        return "\(process) (\(String(decoding: name, as: UTF8.self)))"
    }
}
