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
    /// The maximum number of rereads of the list, for a machine on which processes start all the time.
    static let mostLooks = 100
    /// The maximum number of processes to watch at a time. Each needs a descriptor.
    private static let mostWatched = 64

    let entries: [pid_t: Entry]
    private let root: String

    /// The user's running processes without this one.
    let own: Set<pid_t>
    /// The processes in ``own`` that bear the mark, without the ancestors of this process.
    let marked: Set<pid_t>

    /// Blocks this thread for at most twelve times `patience`.
    ///
    /// - Parameters:
    ///   - mark: `nil` matches no process.
    ///   - user: the user whose processes are checked for the mark.
    ///   - root: the mount point of procfs.
    ///   - patience: the read fails once a process has not responded for one to two times this long.
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
            let fresh = Set(try Self.numbers(in: root)).subtracting(seen)
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
        guard entries[getpid()] != nil else { throw Self.failure(root, "it does not show this process") }
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
            throw Self.failure("the process \(identifier)", code: errno)
        }
        // The number may have been reused before the descriptor was opened.
        guard let now = try Self.entry(identifier, root), now.start == entry.start else { return nil }
        return now.hasEnded ? nil : descriptor
    }

    /// Asks the processes that `look` finds to end, and kills them if they do not.
    ///
    /// - Parameter isIdle: whether no start is in flight; otherwise the processes are looked for again.
    /// - Returns: the processes that are left after the kill; `nil` if all ended.
    static func stop(
        within patience: StopPatience,
        isIdle: () -> Bool = { true },
        _ look: @escaping @Sendable () throws(AdapterFailure) -> Sight
    ) async throws(AdapterFailure) -> Set<pid_t>? {
        for (signal, time) in [(SIGTERM, patience.asked), (SIGKILL, patience.killed)] {
            let deadline = ContinuousClock.now + time
            var left: Duration
            repeat {
                let areGone = try await onSystemThread { () throws(AdapterFailure) in
                    try end(by: signal, until: deadline, look)
                }
                // Taken before the wait: a start that was in flight until the deadline is followed by a last signal.
                left = deadline - ContinuousClock.now
                if areGone, try await holds(within: left, isIdle) { return nil }
            } while left > .zero
        }
        return try await onSystemThread(look).processes
    }

    /// The processes that a scan found, with the snapshot that they are from.
    typealias Sight = (tree: ProcessTree, processes: Set<pid_t>)

    /// Stops the processes with SIGSTOP until a scan finds no new one, then signals all of them and blocks this thread
    /// until they end. Without the SIGSTOP, a process that is about to end could start a child that the scan cannot
    /// find: browsers overwrite the environment of their processes. Returns whether a last scan, after the wait and
    /// even past the deadline, finds no process.
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

    /// The numbers and names of processes, for people.
    static func describe(_ processes: some Sequence<pid_t>) -> String {
        let texts = processes.sorted().map { process in
            let name = (try? bytes(of: "/proc/\(process)/comm"))?.prefix { $0 != UInt8(ascii: "\n") } ?? []
            return "\(process) (\(String(decoding: name, as: UTF8.self)))"
        }
        return texts.joined(separator: ", ")
    }
}

extension ProcessTree {
    /// Above the 6 MB of environment that the kernel passes to a new program at most.
    private static let longestVariables = 8 << 20

    static func numbers(in directory: String) throws(AdapterFailure) -> [pid_t] {
        do {
            return try FileManager.default.contentsOfDirectory(atPath: directory).compactMap { pid_t($0) }
        } catch {
            // The process has ended.
            if [ENOENT, ESRCH].contains(error.code) { return [] }
            throw failure(directory, code: error.code)
        }
    }

    static func entry(_ identifier: pid_t, _ root: String) throws(AdapterFailure) -> Entry? {
        let path = "\(root)/\(identifier)/stat"
        guard let fields = try fields(of: path) else { return nil }
        guard fields.count > 19, let parent = pid_t(fields[1]), let threads = Int(fields[17]),
            let start = UInt64(fields[19])
        else { throw failure(path, "it has an unknown form") }
        // A process whose first thread has ended looks like a zombie while its other threads run.
        let hasEnded = isZombie(fields[0]) && threads <= 1
        return Entry(identifier: identifier, parent: parent, hasEnded: hasEnded, start: start)
    }

    /// The fields after the name in a `stat` file of a process or thread.
    private static func fields(of path: String) throws(AdapterFailure) -> [Substring]? {
        guard let bytes = try Self.bytes(of: path) else { return nil }
        // The name is in parentheses and may itself contain parentheses.
        let text = String(decoding: bytes, as: UTF8.self)
        return text.lastIndex(of: ")").map { text[$0...].dropFirst().split(whereSeparator: \.isWhitespace) } ?? []
    }

    private static func isZombie(_ state: Substring) -> Bool { state == "Z" || state == "X" }

    /// Whether the thread runs no program: it has ended, is exiting, or belongs to the kernel.
    private static func runsNothing(_ thread: String) throws(AdapterFailure) -> Bool {
        guard let fields = try Self.fields(of: "\(thread)/stat") else { return true }
        guard fields.count > 6, let flags = UInt32(fields[6]) else { return false }
        // PF_EXITING and PF_KTHREAD of linux/sched.h.
        return isZombie(fields[0]) || flags & (0x4 | 0x20_0000) != 0
    }

    /// Reads a fact about a process from its first thread or, because that may have ended earlier, from another one.
    /// Throws if threads still run and the kernel gives no value for any of them.
    /// - Parameter read: receives the directory of the process or of a thread, and returns `nil` if the kernel gives no
    ///   value there.
    /// - Returns: `nil` if no thread runs the program any more.
    private static func told<Answer>(
        _ identifier: pid_t,
        _ root: String,
        _ read: (String) throws(AdapterFailure) -> Answer?
    ) throws(AdapterFailure) -> Answer? {
        let process = "\(root)/\(identifier)"
        if let answer = try read(process) { return answer }
        let tasks = "\(process)/task"
        for _ in 0..<mostLooks {
            let threads = Set(try numbers(in: tasks))
            var areOver = true
            for thread in threads {
                if let answer = try read("\(tasks)/\(thread)") { return answer }
                if try !runsNothing("\(tasks)/\(thread)") { areOver = false }
            }
            // A thread that is about to end may have started another after the list was made.
            if areOver, Set(try numbers(in: tasks)).isSubset(of: threads) { return nil }
        }
        throw failure(tasks, code: ESRCH)
    }

    /// The bytes of a file of the process, possibly none.
    private static func told(_ identifier: pid_t, _ root: String, file: String) throws(AdapterFailure) -> [UInt8] {
        try told(identifier, root) { (directory: String) throws(AdapterFailure) -> [UInt8]? in
            let bytes = try Self.bytes(of: "\(directory)/\(file)") ?? []
            // The file is empty if the thread has ended, or if the program has cleared its own memory. Only an ended
            // thread has no `exe`.
            var byte: CChar = 0
            guard bytes.isEmpty, readlink("\(directory)/exe", &byte, 1) < 0 else { return bytes }
            return errno == ENOENT || errno == ESRCH ? nil : bytes
        } ?? []
    }

    /// The real, effective, saved and file system users of the process; none if it has ended. The owner of its
    /// directory does not tell: it is root for a process that is not dumpable.
    static func users(of identifier: pid_t, _ root: String = "/proc") throws(AdapterFailure) -> [UInt32] {
        let path = "\(root)/\(identifier)/status"
        guard let bytes = try bytes(of: path) else { return [] }
        let line = String(decoding: bytes, as: UTF8.self).split(separator: "\n").first { $0.hasPrefix("Uid:") }
        guard let line else { throw failure(path, "it has an unknown form") }
        return line.split(whereSeparator: \.isWhitespace).compactMap { UInt32($0) }
    }

    /// A process that is not dumpable, such as a key agent, counts as unmarked if this adapter runs as the user:
    /// otherwise no cleanup for a user with a key agent could succeed. Those of the command are found as its
    /// descendants.
    static func bears(
        _ mark: Mark,
        _ identifier: pid_t,
        _ user: UInt32,
        _ root: String
    ) throws(AdapterFailure) -> Bool {
        do throws(AdapterFailure) {
            switch mark {
            case .variable(let value): return try hasVariable(identifier, value, root)
            case .path(let path):
                let arguments = try told(identifier, root, file: "cmdline")
                if String(decoding: arguments, as: UTF8.self).contains(path) { return true }
                return try hasVariable(identifier, path, root)
            case .words(let words, let value):
                if has(words, arguments: try told(identifier, root, file: "cmdline")) { return true }
                return try hasVariable(identifier, value, root)
            case .executable(let path):
                let program = try told(identifier, root) { (directory: String) throws(AdapterFailure) -> String? in
                    try target(of: "\(directory)/exe")
                }
                // An update may have replaced the file of a running program.
                return program == path || program == path + " (deleted)"
            case .flatpak(let name):
                let text = try told(identifier, root) { (directory: String) throws(AdapterFailure) -> [UInt8]? in
                    try information(of: "\(directory)/root")
                }
                return text?.split(separator: UInt8(ascii: "\n")).contains { $0.elementsEqual("name=\(name)".utf8) }
                    == true
            }
        } catch {
            guard user == geteuid(), error.code == EACCES || error.code == EPERM else { throw error }
            return false
        }
    }

    /// Compares whole arguments: a shell whose script contains the words is another program. Chromium writes all its
    /// arguments into the first one, separated by spaces.
    private static func has(_ words: [String], arguments: [UInt8]) -> Bool {
        let own = arguments.split(separator: 0, omittingEmptySubsequences: false)
        if own.contains(words.map { Array($0.utf8)[...] }) { return true }
        guard let line = own.first, own.dropFirst().allSatisfy(\.isEmpty) else { return false }
        let blank = UInt8(ascii: " ")
        return ([blank] + line + [blank]).contains([blank] + words.joined(separator: " ").utf8 + [blank])
    }

    private static func hasVariable(_ identifier: pid_t, _ value: String, _ root: String) throws(AdapterFailure) -> Bool
    {
        let text = try told(identifier, root, file: "environ")
        return text.split(separator: 0).contains { $0.elementsEqual("\(mark)=\(value)".utf8) }
    }

    /// Reads Flatpak's file below the root of a process. The user may mount file systems there, even some that refuse
    /// root. Anything but a readable file is not Flatpak's. Returns `nil` if there is no root, because the thread has
    /// ended.
    private static func information(of root: String) throws(AdapterFailure) -> [UInt8]? {
        guard try target(of: root) != nil else { return nil }
        if let bytes = try? Self.bytes(of: "\(root)/.flatpak-info", limit: 65_536) { return bytes }
        return try target(of: root) == nil ? nil : []
    }

    private static func target(of link: String) throws(AdapterFailure) -> String? {
        do {
            return try FileManager.default.destinationOfSymbolicLink(atPath: link)
        } catch {
            guard error.code != ENOENT && error.code != ESRCH else { return nil }
            throw failure(link, code: error.code)
        }
    }

    /// - Returns: the file's bytes; `nil` if the process has ended or the file does not exist.
    private static func bytes(of path: String, limit: Int = longestVariables) throws(AdapterFailure) -> [UInt8]? {
        do throws(FileReadError) {
            return try ReadableFile(path, followsLink: false).prefix(limit)
        } catch {
            guard case .system(let code) = error, code != ENOENT, code != ESRCH else { return nil }
            throw failure(path, code: code)
        }
    }

    static func failure(_ what: String, code: CInt) -> AdapterFailure {
        failure(what, String(cString: strerror(code)), code: code)
    }

    static func failure(_ what: String, _ reason: String, code: CInt = 0) -> AdapterFailure {
        AdapterFailure(
            "see which processes are left, by \(what): \(reason)",
            code: code,
            remedy:
                "The adapter needs /proc, free descriptors (ulimit -n), and as root CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH"
        )
    }
}

extension Error {
    /// The `errno` behind an error of Foundation.
    var code: CInt { ((self as? CocoaError)?.underlying as? POSIXError)?.code.rawValue ?? EIO }
}
