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
    /// The most that the kernel hands a new program as variables is 6 MB.
    private static let longestVariables = 8 << 20

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

    /// - Parameters:
    ///   - user: whose processes are looked at for the mark.
    ///   - root: where the kernel shows its processes.
    init(by mark: Mark, user: UInt32, root: String = "/proc") throws(AdapterFailure) {
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
                if try Self.bears(mark, number, user, root) { marked.insert(number) }
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
        for _ in 0..<mostLooks {
            let fresh = sight.processes.subtracting(halted)
            if fresh.isEmpty { break }
            for process in fresh { try sight.tree.descriptor(of: process)?.send(SIGSTOP) }
            halted.formUnion(fresh)
            sight = try look()
        }
        if sight.processes.isEmpty { return true }
        try sight.tree.end(sight.processes, by: signal, until: deadline)
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

    // MARK: Reading

    private static func numbers(in directory: String) throws(Unreadable) -> [pid_t] {
        do {
            return try FileManager.default.contentsOfDirectory(atPath: directory).compactMap { pid_t($0) }
        } catch {
            let code = error.code
            // A process that has ended meanwhile.
            guard code != ENOENT && code != ESRCH else { return [] }
            throw Unreadable(path: directory, code: code)
        }
    }

    private static func entry(_ identifier: pid_t, _ root: String) throws(AdapterFailure) -> Entry? {
        let path = "\(root)/\(identifier)/stat"
        let text: [Substring]?
        do throws(Unreadable) { text = try Self.fields(of: path) } catch { throw error.failure }
        guard let fields = text else { return nil }
        guard fields.count > 19, let parent = pid_t(fields[1]), let threads = Int(fields[17]),
            let start = UInt64(fields[19])
        else { throw failure(path, "it has not the form that is known of it") }
        // A first thread that has ended leaves a process that looks like a zombie, and whose other threads go on.
        let hasEnded = isZombie(fields[0]) && threads <= 1
        return Entry(identifier: identifier, parent: parent, hasEnded: hasEnded, start: start)
    }

    /// What the kernel's line on a process or a thread has after its name.
    private static func fields(of path: String) throws(Unreadable) -> [Substring]? {
        guard let bytes = try Self.bytes(of: path) else { return nil }
        // The name is in parentheses, and may contain any.
        let text = String(decoding: bytes, as: UTF8.self)
        return text.lastIndex(of: ")").map { text[$0...].dropFirst().split(whereSeparator: \.isWhitespace) } ?? []
    }

    private static func isZombie(_ state: Substring) -> Bool { state == "Z" || state == "X" }

    /// Whether the thread runs nothing of a program any more: it has ended or is about to, or is the kernel's own.
    private static func runsNothing(_ thread: String) throws(Unreadable) -> Bool {
        guard let fields = try Self.fields(of: "\(thread)/stat") else { return true }
        guard fields.count > 6, let flags = UInt32(fields[6]) else { return false }
        // PF_EXITING and PF_KTHREAD of linux/sched.h.
        return isZombie(fields[0]) || flags & (0x4 | 0x20_0000) != 0
    }

    /// What the kernel says of a process: where it says nothing of the first thread, what it says of another, because the first may have ended before
    /// the others.
    ///
    /// - Parameter read: is given the directory of the process, or of a thread; its `nil` means that the kernel says nothing there.
    /// - Returns: `nil` if no thread runs the program any more.
    /// - Throws: ``Unreadable`` where threads run of which nothing is said.
    private static func told<Answer>(
        _ identifier: pid_t,
        _ root: String,
        _ read: (String) throws(Unreadable) -> Answer?
    ) throws(Unreadable) -> Answer? {
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
            // One that is about to end may have started another after the list was made.
            if areOver, Set(try numbers(in: tasks)).isSubset(of: threads) { return nil }
        }
        throw Unreadable(path: tasks, code: ESRCH)
    }

    /// The bytes of a file of the process, which may be empty.
    private static func told(_ identifier: pid_t, _ root: String, file: String) throws(Unreadable) -> [UInt8] {
        try told(identifier, root) { (directory: String) throws(Unreadable) -> [UInt8]? in
            let bytes = try Self.bytes(of: "\(directory)/\(file)") ?? []
            // A thread that has ended has empty files, too; a program may have emptied its own.
            var byte: CChar = 0
            guard bytes.isEmpty, readlink("\(directory)/exe", &byte, 1) < 0 else { return bytes }
            return errno == ENOENT || errno == ESRCH ? nil : bytes
        } ?? []
    }

    /// The users that the process is: the real, the effective, the saved and that for files. Not the owner of its directory, which is root where a
    /// program keeps its memory to itself.
    ///
    /// - Returns: none if it has ended.
    static func users(of identifier: pid_t, _ root: String = "/proc") throws(AdapterFailure) -> [UInt32] {
        let path = "\(root)/\(identifier)/status"
        guard let bytes = try read(path) else { return [] }
        let line = String(decoding: bytes, as: UTF8.self).split(separator: "\n").first { $0.hasPrefix("Uid:") }
        guard let line else { throw failure(path, "it has not the form that is known of it") }
        return line.split(whereSeparator: \.isWhitespace).compactMap { UInt32($0) }
    }

    /// - Throws: ``AdapterFailure`` where an adapter cannot look at another user's process: it is root, and its sandbox is too narrow; nothing is
    ///   known of the process. An adapter that is the user itself cannot look at programs that keep their memory to themselves, as agents for keys do
    ///   all day. If these counted as the app's, no user who has one would ever be clean; those that the command has started are found as its
    ///   descendants.
    private static func bears(
        _ mark: Mark,
        _ identifier: pid_t,
        _ user: UInt32,
        _ root: String
    ) throws(AdapterFailure) -> Bool {
        do throws(Unreadable) {
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
                let program = try told(identifier, root) { (directory: String) throws(Unreadable) -> String? in
                    try target(of: "\(directory)/exe")
                }
                // An update has removed the file of a program that still runs.
                return program == path || program == path + " (deleted)"
            case .flatpak(let name):
                let text = try told(identifier, root) { (directory: String) throws(Unreadable) -> [UInt8]? in
                    try information(of: "\(directory)/root")
                }
                return text?.split(separator: UInt8(ascii: "\n")).contains { $0.elementsEqual("name=\(name)".utf8) }
                    == true
            }
        } catch {
            guard user == geteuid(), error.code == EACCES || error.code == EPERM else { throw error.failure }
            return false
        }
    }

    /// Whole arguments: a shell that has the words in a script of its own is another program. Chromium writes all of its arguments into the first one,
    /// with blanks between them.
    private static func has(_ words: [String], arguments: [UInt8]) -> Bool {
        let own = arguments.split(separator: 0, omittingEmptySubsequences: false)
        if own.contains(words.map { Array($0.utf8)[...] }) { return true }
        guard let line = own.first, own.dropFirst().allSatisfy(\.isEmpty) else { return false }
        let blank = UInt8(ascii: " ")
        return ([blank] + line + [blank]).contains([blank] + words.joined(separator: " ").utf8 + [blank])
    }

    private static func hasVariable(_ identifier: pid_t, _ value: String, _ root: String) throws(Unreadable) -> Bool {
        let text = try told(identifier, root, file: "environ")
        return text.split(separator: 0).contains { $0.elementsEqual("\(mark)=\(value)".utf8) }
    }

    /// Below the root of a process may be anything, file systems of its user's too, which refuse root. What is no file that can be read is not
    /// Flatpak's; only the root itself has to be there to be seen.
    ///
    /// - Returns: `nil` where there is no root, because the thread has ended.
    private static func information(of root: String) throws(Unreadable) -> [UInt8]? {
        guard try target(of: root) != nil else { return nil }
        if let bytes = try? Self.bytes(of: "\(root)/.flatpak-info", limit: 65_536) { return bytes }
        return try target(of: root) == nil ? nil : []
    }

    private static func target(of link: String) throws(Unreadable) -> String? {
        do {
            return try FileManager.default.destinationOfSymbolicLink(atPath: link)
        } catch {
            guard error.code != ENOENT && error.code != ESRCH else { return nil }
            throw Unreadable(path: link, code: error.code)
        }
    }

    private static func read(_ path: String) throws(AdapterFailure) -> [UInt8]? {
        do throws(Unreadable) { return try bytes(of: path) } catch { throw error.failure }
    }

    /// - Returns: the file's bytes; `nil` if its process has ended, or there is no such file.
    private static func bytes(of path: String, limit: Int = longestVariables) throws(Unreadable) -> [UInt8]? {
        // It is not waited for, and no link is followed.
        let file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
        guard file >= 0 else {
            guard errno != ENOENT && errno != ESRCH else { return nil }
            throw Unreadable(path: path, code: errno)
        }
        defer { close(file) }
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 4096)
        while bytes.count < limit {
            let count = Glibc.read(file, &buffer, buffer.count)
            if count == 0 { return bytes }
            if count > 0 {
                bytes += buffer[..<count]
            } else if errno == ESRCH {
                return nil
            } else if errno != EINTR {
                throw Unreadable(path: path, code: errno)
            }
        }
        return bytes
    }

    private struct Unreadable: Error {
        let path: String
        let code: CInt
        var failure: AdapterFailure { ProcessTree.failure(path, String(cString: strerror(code))) }
    }

    private static func failure(_ what: String, _ reason: String) -> AdapterFailure {
        AdapterFailure(
            "see which processes are left, by",
            what,
            reason,
            remedy: "Needed: /proc, free descriptors (ulimit -n), as root CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH"
        )
    }
}

extension Error {
    /// The number of the system's error that a call of Foundation has met.
    var code: CInt { ((self as? CocoaError)?.underlying as? POSIXError)?.code.rawValue ?? EIO }
}
