import DBusTransport
import FoundationEssentials
import Glibc
import SharedDevice

/// The processes of this machine in one moment, by `/proc`. What cannot be read is an error, because a process that is not seen would keep a
/// person's data after the receipt.
struct ProcessTree {
    struct Entry: Equatable {
        let identifier: pid_t
        let parent: pid_t
        /// Whether all of its threads have ended, and its parent has not collected it.
        let hasEnded: Bool
        /// When it was started, in the kernel's ticks: with the number, it is this process and no later one.
        let start: UInt64
    }

    /// By what processes of an app are found that descend from nobody who is known.
    enum Mark: Sendable {
        /// What their variable ``ProcessTree/mark`` says.
        case variable(String)
        /// The same, or a path that is in their arguments, and in those of no other program. Browsers overwrite the variables of their processes,
        /// of the first one too.
        case path(String)
        /// The same, or these words, one after the other, among their arguments: those by which a program keeps everything in one place.
        case words([String], variable: String)
        /// The absolute path of their program.
        case executable(String)
        /// The id of the Flatpak whose sandbox they are in.
        case flatpak(String)
    }

    /// The variable of all that an adapter has started.
    static let mark = "SHARED_DEVICE_ADAPTER"
    /// How often the list is read, on a machine where processes are started all the time.
    static let mostLooks = 100
    /// How many processes are watched at a time, each by a descriptor.
    private static let mostWatched = 64

    let entries: [pid_t: Entry]
    private let root: String

    /// The user's processes that have not ended, but for this one.
    let own: Set<pid_t>
    /// Those of them that bear the mark, but for those that this process descends from.
    let marked: Set<pid_t>

    /// By the variable that says `value`.
    init(marked value: String, user: UInt32, root: String = "/proc") throws(AdapterFailure) {
        try self.init(by: .variable(value), user: user, root: root)
    }

    /// Waits on this thread, at most twelve times `patience`.
    ///
    /// - Parameters:
    ///   - mark: `nil` finds none.
    ///   - user: whose processes are looked at for the mark.
    ///   - root: where the kernel shows its processes.
    ///   - patience: a process that does not answer ends the wait after one to two times as long.
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
            // One that ends before it is read may have started another after the list was made: until a list has no new number.
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
        // Whatever starts this process may have the command's words among its own. An adapter that ended it would halt itself on the way.
        self.marked = marked.subtracting(Self.ancestors(of: getpid(), entries))
        guard entries[getpid()] != nil else {
            throw Self.failure(root, "it does not show this process")
        }
    }

    private static func ancestors(of process: pid_t, _ entries: [pid_t: Entry]) -> Set<pid_t> {
        var found: Set<pid_t> = []
        var next = entries[process]?.parent
        // Numbers that were read one after the other may go in a circle.
        while let number = next, let entry = entries[number], found.insert(number).inserted { next = entry.parent }
        return found
    }

    /// The processes below `roots` that have not ended, leaving out what is below `excluded`.
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

    /// A descriptor of the process that was seen; `nil` if it has ended.
    func descriptor(of identifier: pid_t) throws(AdapterFailure) -> ProcessDescriptor? {
        guard let entry = entries[identifier] else { return nil }
        guard let descriptor = ProcessDescriptor(identifier) else {
            guard errno != ESRCH else { return nil }
            throw Self.failure("the process \(identifier)", String(cString: strerror(errno)))
        }
        // The number may have passed to another process before the descriptor was opened.
        guard let now = try Self.entry(identifier, root), now.start == entry.start else { return nil }
        return now.hasEnded ? nil : descriptor
    }

    /// What a look for processes finds, and the moment in which it saw them.
    typealias Sight = (tree: ProcessTree, processes: Set<pid_t>)

    /// Halts the processes where they stand, until none has come along since the look before; then signals all of them, and waits on this thread for
    /// their end. Otherwise one that is about to end could start another, to which nothing leads any more: browsers overwrite the variables of their
    /// processes.
    ///
    /// - Returns: whether none is left. It looks once more after it has waited, however late that is.
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
            // One that stands still may be what a process waits for, whose words the look reads.
            for process in halted { try? sight.tree.descriptor(of: process)?.send(SIGCONT) }
            throw error
        }
        return try look().processes.isEmpty
    }

    /// Signals these, and lets them go on.
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
            // Of a program that starts others without end, only so many: the next look sees the rest.
            if watched.count < Self.mostWatched { watched.append(descriptor) }
        }
        for descriptor in watched where !descriptor.hasEnded(by: deadline) { break }
    }

    /// Collects children that this process adopted and that have ended.
    func collectAdopted() {
        let own = HelperProcess.own
        for entry in entries.values where entry.hasEnded && entry.parent == getpid() && !own.contains(entry.identifier)
        {
            waitpid(entry.identifier, nil, WNOHANG)
        }
    }

    /// For people.
    static func describe(_ process: pid_t) -> String {
        let name = (try? read("/proc/\(process)/comm"))?.prefix { $0 != UInt8(ascii: "\n") } ?? []
        return "\(process) (\(String(decoding: name, as: UTF8.self)))"
    }
}
