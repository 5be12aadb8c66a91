/// inotify's descriptor of a watched directory or file.
typealias Watch = Int32

enum WatchFailure: Error, Hashable, Sendable {
    /// It does not exist, or is not a directory although one is needed.
    case missing
    /// This process may not read it.
    case denied
    /// The kernel has no watches left, or another error occurred; in words.
    case impossible(String)
}

/// The kind of file at a path. A link is not followed.
enum FileEntry: Hashable, Sendable {
    case missing
    case denied
    /// A symbolic link and its text.
    case link([UInt8])
    case file(FileSnapshot, isDirectory: Bool)
}

/// The operations on the file system that the resolution of a path needs.
protocol FileSystemLook {
    /// Watches a directory; a link is not followed.
    mutating func watch(directory: FilePath) throws(WatchFailure) -> Watch
    /// Watches a directory, and writes to its entries.
    mutating func watch(writesIn directory: FilePath) throws(WatchFailure) -> Watch
    /// Watches a file that is not a directory; a link is not followed.
    mutating func watch(file: FilePath) throws(WatchFailure) -> Watch
    func entry(at path: FilePath) -> FileEntry
}

/// The events of a watch that matter to a path.
enum WatchInterest: Hashable, Sendable {
    /// An entry before the path's last part.
    case entry(FilePath.Name)
    /// The entry that is the path's last part.
    case last(FilePath.Name)
    case target
}

/// The watches that a path needs in the current file system, and the file at its end. Pure, except for the look.
///
/// Each directory of the path is watched for the path's next part, links and their targets included. The path's target
/// is watched itself. Each part is watched before it is looked at, so that a change in between is reported.
///
/// inotify needs the right to read what it watches. An unreadable file is watched through its directory. If the
/// directory is unreadable too, the path is compared with the previous look from time to time.
struct PathResolution: Hashable, Sendable {
    enum End: Hashable, Sendable {
        case present(FileSnapshot)
        case missing
        /// A directory on the way may not be searched.
        case denied
        case impossible(String)
    }

    /// A watch may have several interests.
    private(set) var interests: [Watch: Set<WatchInterest>] = [:]
    private(set) var end = End.missing
    /// Whether a part of the path cannot be watched, so that only another look shows changes.
    private(set) var isCompared = false

    var snapshot: FileSnapshot? {
        if case .present(let snapshot) = end { snapshot } else { nil }
    }

    /// The number of links that the kernel follows.
    private static let maximumLinks = 40

    /// The number of parts in two of the longest paths. The kernel follows more, but such a path would only delay the
    /// others.
    private static let maximumParts = 4096

    /// - Parameter contents: Whether to watch the files in the directory at the path as well.
    init(of path: FilePath, contents: Bool = false, by look: inout some FileSystemLook) {
        do throws(WatchFailure) {
            end = try resolve(path, contents, &look)
        } catch {
            end =
                switch error {
                case .missing: .missing
                case .denied: .denied
                case .impossible(let message): .impossible(message)
                }
        }
    }

    private mutating func resolve(
        _ path: FilePath,
        _ contents: Bool,
        _ look: inout some FileSystemLook
    ) throws(WatchFailure) -> End {
        // Reversed, so that the next part is the last element.
        var parts = Array(FilePath.names(in: path.bytes).reversed())
        var directory = FilePath.root
        var (links, taken) = (0, 0)
        while let name = parts.popLast() {
            taken += 1
            guard taken <= Self.maximumParts else { return .missing }
            if name == FilePath.upwards {
                directory = directory.parent
                continue
            }
            try watch(directory, parts.isEmpty ? .last(name) : .entry(name), &look)
            let place = directory.appending(name)
            switch look.entry(at: place) {
            case .missing: return .missing
            case .denied: return .denied
            case .link(let target):
                links += 1
                guard links <= Self.maximumLinks else { return .missing }
                if FilePath.isAbsolute(target) { directory = .root }
                parts += FilePath.names(in: target).reversed()
            case .file(_, isDirectory: true): directory = place
            case .file(_, isDirectory: false):
                guard parts.isEmpty else { return .missing }
                try watch(file: place, in: directory, as: name, &look)
                guard case .file(let snapshot, isDirectory: false) = look.entry(at: place) else { return .missing }
                return .present(snapshot)
            }
        }
        try watch(directory, .target, contents: contents, &look)
        guard case .file(let snapshot, _) = look.entry(at: directory) else { return .missing }
        return .present(snapshot)
    }

    private mutating func watch(
        _ directory: FilePath,
        _ interest: WatchInterest,
        contents: Bool = false,
        _ look: inout some FileSystemLook
    ) throws(WatchFailure) {
        do throws(WatchFailure) {
            let watch = contents ? try look.watch(writesIn: directory) : try look.watch(directory: directory)
            interests[watch, default: []].insert(interest)
        } catch {
            guard error == .denied else { throw error }
            isCompared = true
        }
    }

    private mutating func watch(
        file: FilePath,
        in directory: FilePath,
        as name: FilePath.Name,
        _ look: inout some FileSystemLook
    ) throws(WatchFailure) {
        do throws(WatchFailure) {
            interests[try look.watch(file: file), default: []].insert(.target)
        } catch {
            guard error == .denied else { throw error }
            do throws(WatchFailure) {
                interests[try look.watch(writesIn: directory), default: []].insert(.last(name))
            } catch {
                guard error == .denied else { throw error }
                isCompared = true
            }
        }
    }
}
