import Basics
import DeviceConfiguration
import Glibc
@_spi(Extensions) import SharedDevice

/// The mounts above the paths that an adapter deletes, and whether each path has a parent directory. If a path leads
/// elsewhere at the end of a session than at its beginning, there would be nothing to delete, and the receipt would
/// claim that all data is gone.
struct SessionPlaces: Codable, Sendable, Equatable {
    struct Mount: Codable, Sendable, Hashable {
        let point: String
        let type: String

        /// Unmounting it destroys its content.
        var isInMemory: Bool { type == "tmpfs" || type == "ramfs" }
        /// A process serves it, and may not respond.
        var isAnsweredByProcess: Bool { type.hasPrefix("fuse") }
    }

    struct Place: Codable, Sendable, Equatable {
        let path: String
        let hasParent: Bool
        /// The mounts at the parent directory and above. Stacked mounts of one point are listed bottom first.
        let mounts: [Mount]
    }

    let places: [Place]

    /// Reads the file system.
    init(paths: [String]) throws(AdapterFailure) {
        let first = try Self.mounts()
        // Looking at a directory triggers automounters. So the mounts are listed again afterwards, and only the second
        // list counts.
        let hasParent = paths.map { path in
            let isAnswered = !Self.above(path, first).contains(where: \.isAnsweredByProcess)
            return isAnswered && Self.isThere(DeclaredPath.split(path).parent)
        }
        let mounts = try Self.mounts()
        places = zip(paths, hasParent).map { path, hasParent in
            Place(path: path, hasParent: hasParent, mounts: Self.above(path, mounts))
        }
    }

    init(places: [Place]) { self.places = places }

    /// The paths that lead elsewhere in `now`, which looked at the same paths later, each with the reason.
    func moved(_ now: SessionPlaces) -> [(path: String, failure: AdapterFailure)] {
        now.places.compactMap { place in
            // Compares bytes: paths that are equal as text may be different files.
            let before = places.first { $0.path.utf8.elementsEqual(place.path.utf8) }
            return before.flatMap { Self.failure($0, place) }.map { (place.path, $0) }
        }
    }

    private static func failure(_ before: Place, _ now: Place) -> AdapterFailure? {
        func failure(_ reason: String, _ remedy: String) -> AdapterFailure {
            AdapterFailure("delete \(now.path): \(reason)", remedy: remedy)
        }
        if let new = surplus(of: now.mounts, over: before.mounts).last {
            return failure(
                "something was mounted at \(new.point) after the session began, and may cover the data",
                "Unmount it (umount \(new.point)); mount what belongs there before a person signs in"
            )
        }
        let gone = surplus(of: before.mounts, over: now.mounts)
        if let gone = gone.first(where: { !$0.isInMemory }) {
            return failure(
                "\(gone.point) was unmounted after the session began, and the data may be on it",
                "Mount it again"
            )
        }
        guard before.hasParent, !now.hasParent, gone.isEmpty else { return nil }
        return failure(
            "the directory \(DeclaredPath.split(now.path).parent) was moved or removed after the session began",
            "Move it back; if it was deleted, create it again"
        )
    }

    /// The mounts that one list contains more often than the other.
    private static func surplus(of mounts: [Mount], over others: [Mount]) -> [Mount] {
        var counts: [Mount: Int] = [:]
        for other in others { counts[other, default: 0] += 1 }
        return mounts.filter { mount in
            counts[mount, default: 0] -= 1
            return counts[mount, default: 0] < 0
        }
    }

    // MARK: Looking

    /// A path that this user may not see counts as existing.
    private static func isThere(_ path: String) -> Bool {
        var status = stat()
        return lstat(path, &status) == 0 || errno != ENOENT && errno != ENOTDIR
    }

    private static func above(_ path: String, _ mounts: [Mount]) -> [Mount] {
        let parent = DeclaredPath.split(path).parent
        return mounts.filter { $0.point == "/" || CleanupPath.isSame(parent, orBelow: $0.point) }
    }

    private static func mounts() throws(AdapterFailure) -> [Mount] {
        guard let bytes = try? ReadableFile("/proc/self/mountinfo").content(atMost: 64 << 20) else {
            let failure = "see what is mounted, in /proc/self/mountinfo: \(String(cString: strerror(errno)))"
            throw AdapterFailure(failure, remedy: "Let the adapter see /proc")
        }
        return bytes.split(separator: UInt8(ascii: "\n")).compactMap(mount)
    }

    /// - Parameter line: for instance `36 35 98:0 / /mnt rw,noatime master:1 - ext4 /dev/root rw`.
    private static func mount(_ line: ArraySlice<UInt8>) -> Mount? {
        let fields = line.split(separator: UInt8(ascii: " "))
        guard fields.count > 6, let end = fields.dropFirst(6).firstIndex(of: [UInt8(ascii: "-")]),
            end + 1 < fields.count
        else { return nil }
        return Mount(point: text(fields[4]), type: text(fields[end + 1]))
    }

    /// Decodes spaces, tabs, line ends and backslashes, which the kernel writes as a backslash and three octal digits.
    private static func text(_ field: ArraySlice<UInt8>) -> String {
        var bytes: [UInt8] = []
        var rest = field
        while let byte = rest.popFirst() {
            if byte == UInt8(ascii: "\\"), let code = UInt8(String(decoding: rest.prefix(3), as: UTF8.self), radix: 8) {
                bytes.append(code)
                rest = rest.dropFirst(3)
            } else {
                bytes.append(byte)
            }
        }
        return String(decoding: bytes, as: UTF8.self)
    }
}

/// The ``SessionPlaces`` of a session's beginning. Kept on the disk, because the adapter may restart during the
/// session.
struct SessionRecord: Sendable {
    private let file: StateFile
    private let paths: [String]

    /// - Parameter stateDirectory: the directory of the adapter's record of the app.
    init(stateDirectory: String, paths: [String]) {
        file = StateFile("shared-device-places.json", in: stateDirectory)
        self.paths = paths
    }

    /// Records the places, unless this session has a record.
    func begin() throws(AdapterFailure) {
        guard try read() == nil else { return }
        try file.write(SessionPlaces(paths: paths), Self.content)
    }

    /// Removes the record when no data of the session is left.
    func end() throws(AdapterFailure) { try file.write(nil as SessionPlaces?, Self.content) }

    /// The paths that lead elsewhere than at the beginning of the session. Empty without a record.
    func moved() throws(AdapterFailure) -> [(path: String, failure: AdapterFailure)] {
        guard let before = try read() else { return [] }
        return before.moved(try SessionPlaces(paths: paths))
    }

    private static let content = "the places of the session's data"

    private func read() throws(AdapterFailure) -> SessionPlaces? {
        let remedy = "Make it readable; or check that nothing is mounted above the declared paths, and remove the file"
        return try file.read(SessionPlaces.self, Self.content, remedy: remedy)
    }
}
