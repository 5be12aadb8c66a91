import CLinux
import Glibc

/// An absolute path, as bytes: the kernel knows no other text.
struct FilePath: Hashable, Sendable {
    /// The name of one entry of a directory.
    typealias Name = [UInt8]

    let bytes: [UInt8]

    static let root = FilePath(bytes: [slash])
    private static let slash = UInt8(ascii: "/")

    private init(bytes: [UInt8]) { self.bytes = bytes }

    init(_ text: String) { bytes = Array(text.utf8) }

    /// An entry of this directory.
    func appending(_ name: Name) -> FilePath {
        FilePath(bytes: bytes == [Self.slash] ? bytes + name : bytes + [Self.slash] + name)
    }

    /// The directory that this one is in, for a path without links and dots; the root's is the root.
    var parent: FilePath {
        guard let last = bytes.lastIndex(of: Self.slash), last > 0 else { return .root }
        return FilePath(bytes: Array(bytes[..<last]))
    }

    /// The entries from directory to directory that a text spells.
    static func names(in bytes: [UInt8]) -> [Name] {
        bytes.split(separator: slash).map(Array.init).filter { $0 != [UInt8(ascii: ".")] }
    }

    static func isAbsolute(_ bytes: [UInt8]) -> Bool { bytes.first == slash }

    static let upwards: Name = Array("..".utf8)

    /// The path as C takes it.
    func withCString<Result>(_ body: (UnsafePointer<CChar>) -> Result) -> Result {
        (bytes + [0]).withUnsafeBytes { buffer in
            // Never empty: it ends with the zero.
            body(buffer.assumingMemoryBound(to: CChar.self).baseAddress!)
        }
    }
}

extension FilePath: CustomStringConvertible {
    var description: String { String(decoding: bytes, as: UTF8.self) }
}

/// As whom files are looked at.
enum FileIdentity: Hashable, Sendable {
    /// As notifyd itself.
    case own
    /// As another user, which takes root's rights.
    case other(user: UInt32, groups: [UInt32])

    /// As whom notifyd looks for a client; `nil` where it cannot.
    init?(of client: ClientIdentity, own user: UInt32 = geteuid()) {
        if client.user == user {
            self = .own
        } else if user == 0 {
            self = .other(user: client.user, groups: client.groups)
        } else {
            return nil
        }
    }

    /// Does `body` as this identity, on this thread and no other.
    func perform<Result>(_ body: () -> Result, denied: () -> Result) -> Result {
        guard case .other(let user, let groups) = self else { return body() }
        let own = Self.ownGroups
        let code = CLinux_actAs(user, groups, groups.count)
        // Not even this process's root may, as in a container: then it still is itself.
        guard code >= 0 else { return denied() }
        defer {
            // Root's way back is never barred, whatever a client asks for: the thread keeps the right to change its groups, which has just
            // been used. Were the kernel out of memory, to go on as the wrong user would be worse than to end.
            guard CLinux_actAsMyself(own, own.count) == 0 else { fatalError("notifyd could not act as itself again") }
        }
        return code == 0 ? body() : denied()
    }

    /// The supplementary groups of the process.
    static let ownGroups: [gid_t] = {
        let count = getgroups(0, nil)
        guard count > 0 else { return [] }
        var groups = [gid_t](repeating: 0, count: Int(count))
        let filled = getgroups(count, &groups)
        return Array(groups.prefix(max(0, Int(filled))))
    }()
}

/// What stat(2) says of what a path names, as far as a change of it counts.
struct FileSnapshot: Hashable, Sendable {
    struct Time: Hashable, Sendable {
        var seconds: Int
        var nanoseconds: Int

        init(_ seconds: Int, _ nanoseconds: Int = 0) {
            self.seconds = seconds
            self.nanoseconds = nanoseconds
        }
    }

    var device: UInt64 = 0
    var inode: UInt64 = 0
    var mode: UInt32 = 0
    var user: UInt32 = 0
    var group: UInt32 = 0
    var links: UInt64 = 0
    var size: Int64 = 0
    var modified = Time(0)
    var changed = Time(0)

    /// What the difference of two looks says; `nil` stands for nothing there.
    static func difference(_ before: FileSnapshot?, _ after: FileSnapshot?) -> PathEvents {
        switch (before, after) {
        case (nil, nil): return []
        case (nil, _): return .create
        case (_, nil): return .delete
        case (let before?, let after?):
            var events: PathEvents = []
            if (before.device, before.inode) != (after.device, after.inode) {
                events.formUnion([.delete, .create, .rename])
            }
            if before.modified != after.modified { events.formUnion([.write, .mtime]) }
            if before.changed != after.changed { events.insert(.ctime) }
            if after.size > before.size { events.insert(.extend) }
            if after.size < before.size { events.insert(.write) }
            if (before.mode, before.user, before.group) != (after.mode, after.user, after.group) {
                events.insert(.attrib)
            }
            if before.links != after.links { events.insert(.link) }
            return events
        }
    }
}

extension FileSnapshot {
    init(_ status: stat) {
        device = UInt64(status.st_dev)
        inode = UInt64(status.st_ino)
        mode = status.st_mode
        user = status.st_uid
        group = status.st_gid
        links = UInt64(status.st_nlink)
        size = Int64(status.st_size)
        modified = Time(status.st_mtim.tv_sec, status.st_mtim.tv_nsec)
        changed = Time(status.st_ctim.tv_sec, status.st_ctim.tv_nsec)
    }
}
