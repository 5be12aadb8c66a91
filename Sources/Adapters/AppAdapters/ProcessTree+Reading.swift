import Basics
import FoundationEssentials
import Glibc

extension ProcessTree {
    /// Above the 6 MB of environment that the kernel passes to a new program at most.
    private static let longestVariables = 8 << 20

    static func numbers(in directory: String) throws(Unreadable) -> [pid_t] {
        do {
            return try FileManager.default.contentsOfDirectory(atPath: directory).compactMap { pid_t($0) }
        } catch {
            let code = error.code
            // The process has ended.
            guard code != ENOENT && code != ESRCH else { return [] }
            throw Unreadable(path: directory, code: code)
        }
    }

    static func entry(_ identifier: pid_t, _ root: String) throws(AdapterFailure) -> Entry? {
        let path = "\(root)/\(identifier)/stat"
        let text: [Substring]?
        do throws(Unreadable) { text = try Self.fields(of: path) } catch { throw error.failure }
        guard let fields = text else { return nil }
        guard fields.count > 19, let parent = pid_t(fields[1]), let threads = Int(fields[17]),
            let start = UInt64(fields[19])
        else { throw failure(path, "it has an unknown form") }
        // A process whose first thread has ended looks like a zombie while its other threads run.
        let hasEnded = isZombie(fields[0]) && threads <= 1
        return Entry(identifier: identifier, parent: parent, hasEnded: hasEnded, start: start)
    }

    /// The fields after the name in a `stat` file of a process or thread.
    private static func fields(of path: String) throws(Unreadable) -> [Substring]? {
        guard let bytes = try Self.bytes(of: path) else { return nil }
        // The name is in parentheses and may itself contain parentheses.
        let text = String(decoding: bytes, as: UTF8.self)
        return text.lastIndex(of: ")").map { text[$0...].dropFirst().split(whereSeparator: \.isWhitespace) } ?? []
    }

    private static func isZombie(_ state: Substring) -> Bool { state == "Z" || state == "X" }

    /// Whether the thread runs no program: it has ended, is exiting, or belongs to the kernel.
    private static func runsNothing(_ thread: String) throws(Unreadable) -> Bool {
        guard let fields = try Self.fields(of: "\(thread)/stat") else { return true }
        guard fields.count > 6, let flags = UInt32(fields[6]) else { return false }
        // PF_EXITING and PF_KTHREAD of linux/sched.h.
        return isZombie(fields[0]) || flags & (0x4 | 0x20_0000) != 0
    }

    /// Reads a fact about a process from its first thread, or from another thread, because the first may have ended
    /// earlier.
    ///
    /// - Parameter read: receives the directory of the process or of a thread, and returns `nil` if the kernel gives no
    ///   value there.
    /// - Returns: `nil` if no thread runs the program any more.
    /// - Throws: ``Unreadable`` if threads still run and the kernel gives no value for any of them.
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
            // A thread that is about to end may have started another after the list was made.
            if areOver, Set(try numbers(in: tasks)).isSubset(of: threads) { return nil }
        }
        throw Unreadable(path: tasks, code: ESRCH)
    }

    /// The bytes of a file of the process, possibly none.
    private static func told(_ identifier: pid_t, _ root: String, file: String) throws(Unreadable) -> [UInt8] {
        try told(identifier, root) { (directory: String) throws(Unreadable) -> [UInt8]? in
            let bytes = try Self.bytes(of: "\(directory)/\(file)") ?? []
            // The file is empty if the thread has ended, or if the program has cleared its own memory. Only the first
            // has no `exe`.
            var byte: CChar = 0
            guard bytes.isEmpty, readlink("\(directory)/exe", &byte, 1) < 0 else { return bytes }
            return errno == ENOENT || errno == ESRCH ? nil : bytes
        } ?? []
    }

    /// The real, effective, saved and file system users of the process. The owner of its directory does not tell: it is
    /// root for a process that is not dumpable.
    ///
    /// - Returns: an empty array if the process has ended.
    static func users(of identifier: pid_t, _ root: String = "/proc") throws(AdapterFailure) -> [UInt32] {
        let path = "\(root)/\(identifier)/status"
        guard let bytes = try read(path) else { return [] }
        let line = String(decoding: bytes, as: UTF8.self).split(separator: "\n").first { $0.hasPrefix("Uid:") }
        guard let line else { throw failure(path, "it has an unknown form") }
        return line.split(whereSeparator: \.isWhitespace).compactMap { UInt32($0) }
    }

    /// - Throws: ``AdapterFailure`` if a root adapter cannot read another user's process, because its sandbox is too
    ///   narrow. An adapter that runs as the user cannot read processes that are not dumpable, such as key agents. Such
    ///   processes count as unmarked, or the user of an agent could never be cleaned up. The command's own are found as
    ///   its descendants.
    static func bears(
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
                // An update may have replaced the file of a running program.
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

    /// Compares whole arguments: a shell whose script contains the words is another program. Chromium writes all its
    /// arguments into the first one, separated by spaces.
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

    /// Reads Flatpak's file below the root of a process. The user may mount file systems there, even some that refuse
    /// root. Anything but a readable file is not Flatpak's; only the root itself must exist.
    ///
    /// - Returns: `nil` if there is no root, because the thread has ended.
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

    static func read(_ path: String) throws(AdapterFailure) -> [UInt8]? {
        do throws(Unreadable) { return try bytes(of: path) } catch { throw error.failure }
    }

    /// - Returns: the file's bytes; `nil` if the process has ended or the file does not exist.
    private static func bytes(of path: String, limit: Int = longestVariables) throws(Unreadable) -> [UInt8]? {
        do throws(FileReadError) {
            return try ReadableFile(path, followsLink: false).prefix(limit)
        } catch {
            guard case .system(let code) = error, code != ENOENT, code != ESRCH else { return nil }
            throw Unreadable(path: path, code: code)
        }
    }

    struct Unreadable: Error {
        let path: String
        let code: CInt
        var failure: AdapterFailure { ProcessTree.failure(path, String(cString: strerror(code))) }
    }

    static func failure(_ what: String, _ reason: String) -> AdapterFailure {
        AdapterFailure(
            "see which processes are left, by",
            what,
            reason,
            remedy:
                "The adapter needs /proc, free descriptors (ulimit -n), and as root CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH"
        )
    }
}

extension Error {
    /// The `errno` behind an error of Foundation.
    var code: CInt { ((self as? CocoaError)?.underlying as? POSIXError)?.code.rawValue ?? EIO }
}
