import FoundationEssentials
import Glibc
import SharedDevice

/// The processes of this machine, by `/proc`.
enum ProcessTree {
    struct Entry {
        let identifier: pid_t
        let parent: pid_t
        /// Whether it has ended, and its parent has not collected it.
        let isZombie: Bool
    }

    /// The variable by which processes of an app are found that no longer descend from the adapter.
    static let mark = "SHARED_DEVICE_ADAPTER"

    static func entries() -> [Entry] {
        let names = (try? FileManager.default.contentsOfDirectory(atPath: "/proc")) ?? []
        return names.compactMap { name in
            guard let identifier = pid_t(name), let text = text("/proc/\(name)/stat"),
                // The name is in parentheses, and may contain any.
                let end = text.lastIndex(of: ")")
            else { return nil }
            let fields = text[end...].dropFirst().split(separator: " ")
            guard fields.count > 1, let parent = pid_t(fields[1]) else { return nil }
            return Entry(identifier: identifier, parent: parent, isZombie: fields[0] == "Z" || fields[0] == "X")
        }
    }

    /// The processes below `root` that have not ended, leaving out what is below `excluded`.
    static func descendants(of root: pid_t, excluding excluded: Set<pid_t>, in entries: [Entry]) -> Set<pid_t> {
        let children = Dictionary(grouping: entries) { $0.parent }
        var found: Set<pid_t> = []
        var open = [root]
        while let parent = open.popLast() {
            for child in children[parent] ?? [] where !excluded.contains(child.identifier) {
                open.append(child.identifier)
                if !child.isZombie { found.insert(child.identifier) }
            }
        }
        return found
    }

    /// The processes of the user that bear this mark, those that an earlier adapter has started, too.
    static func marked(_ value: String, user: UInt32, in entries: [Entry]) -> Set<pid_t> {
        let wanted = Array("\(mark)=\(value)".utf8)
        return Set(
            entries.filter { !$0.isZombie && $0.identifier != getpid() && hasVariable($0.identifier, wanted, user) }
                .map(\.identifier)
        )
    }

    private static func hasVariable(_ process: pid_t, _ wanted: [UInt8], _ user: UInt32) -> Bool {
        var status = stat()
        guard stat("/proc/\(process)", &status) == 0, status.st_uid == user,
            let variables = FileManager.default.contents(atPath: "/proc/\(process)/environ")
        else { return false }
        return variables.split(separator: 0).contains { $0.elementsEqual(wanted) }
    }

    /// Collects children that this process adopted and that have ended.
    static func collectAdopted(in entries: [Entry]) {
        let own = HelperProcess.own
        for entry in entries where entry.isZombie && entry.parent == getpid() && !own.contains(entry.identifier) {
            waitpid(entry.identifier, nil, WNOHANG)
        }
    }

    /// For people.
    static func describe(_ process: pid_t) -> String {
        let name = text("/proc/\(process)/comm")?.prefix { $0 != "\n" } ?? "?"
        return "\(process) (\(name))"
    }

    private static func text(_ path: String) -> String? {
        FileManager.default.contents(atPath: path).map { String(decoding: $0, as: UTF8.self) }
    }
}
