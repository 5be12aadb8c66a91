import CLinux
import Glibc
import NotifydProtocol

/// An absolute path, as bytes, because that is how the kernel has it.
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

extension Identity {
    /// Does `body` with the rights of this user and these groups, on this thread and no other. Acting as another user takes root's rights:
    /// without them, and where the kernel does not allow it, the result is that of `denied`.
    func perform<Result>(_ body: () -> Result, denied: () -> Result) -> Result {
        let ownUser = geteuid()
        if user == ownUser { return body() }
        guard ownUser == 0 else { return denied() }
        let ownGroups = Self.supplementaryGroups
        let code = CLinux_actAs(user, groups, groups.count)
        // In a container even root may lack the right. Then the thread still has its own identity.
        guard code >= 0 else { return denied() }
        defer {
            // The way back is open whatever a client asks for: the thread keeps the right to change its groups, which it has just used. If the
            // kernel is out of memory, it is better to end than to go on as the wrong user.
            guard CLinux_actAsMyself(ownGroups, ownGroups.count) == 0 else {
                fatalError("notifyd could not act as itself again")
            }
        }
        return code == 0 ? body() : denied()
    }
}

/// The part of stat(2)'s answer about a path whose changes count.
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

    /// The events that explain the difference of two looks; `nil` means that there was no file.
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
