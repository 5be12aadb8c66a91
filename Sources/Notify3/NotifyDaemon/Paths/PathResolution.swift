/// A watch of the kernel's: inotify's descriptor of one directory or file.
typealias Watch = Int32

/// Why a directory or file cannot be watched.
enum WatchFailure: Error, Hashable, Sendable {
    /// It is not there, or not a directory where one is needed.
    case missing
    /// Whoever asks may not read it.
    case denied
    /// The machine grants no more watches, or another error, for people.
    case impossible(String)
}

/// What is at a place, links not followed.
enum FileEntry: Hashable, Sendable {
    case missing
    case denied
    /// A symbolic link and what it says.
    case link([UInt8])
    case file(FileSnapshot, isDirectory: Bool)
}

/// The file system as resolving a path needs it.
protocol FileSystemLook {
    /// Watches a directory, not through a link.
    mutating func watch(directory: FilePath) throws(WatchFailure) -> Watch
    /// Watches what is no directory, not through a link.
    mutating func watch(file: FilePath) throws(WatchFailure) -> Watch
    func entry(at path: FilePath) -> FileEntry
}

/// What of a watch matters to a path.
enum WatchInterest: Hashable, Sendable {
    /// An entry on the way.
    case entry(FilePath.Name)
    /// The entry that is the path's last part.
    case last(FilePath.Name)
    /// What the path names.
    case target
}

/// The watches that a path needs as the file system is, and what is there. Pure but for the look.
///
/// Each directory on the way is watched for the path's next part, links and what they lead to included; what the path names is watched
/// itself. A directory is watched before its entry is looked at: what changes in between is told.
struct PathResolution: Hashable, Sendable {
    enum End: Hashable, Sendable {
        case present(FileSnapshot)
        case missing
        /// Something on the way, or what is there, may not be read.
        case denied
        case impossible(String)
    }

    /// Of one watch there may be several interests.
    private(set) var interests: [Watch: Set<WatchInterest>] = [:]
    private(set) var end = End.missing

    var snapshot: FileSnapshot? {
        if case .present(let snapshot) = end { snapshot } else { nil }
    }

    /// As many links as the kernel follows.
    private static let maximumLinks = 40

    /// As many parts as two of the longest paths have. The kernel follows more, but who asks for that wants to keep others waiting.
    private static let maximumParts = 4096

    private init(end: End) { self.end = end }

    /// Of a path that may not be looked at.
    static let denied = PathResolution(end: .denied)

    init(of path: FilePath, by look: inout some FileSystemLook) {
        do throws(WatchFailure) {
            end = try resolve(path, &look)
        } catch {
            end =
                switch error {
                case .missing: .missing
                case .denied: .denied
                case .impossible(let message): .impossible(message)
                }
        }
    }

    private mutating func resolve(_ path: FilePath, _ look: inout some FileSystemLook) throws(WatchFailure) -> End {
        // The next part last.
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
            let watch = try look.watch(directory: directory)
            interests[watch, default: []].insert(parts.isEmpty ? .last(name) : .entry(name))
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
            case .file(let snapshot, isDirectory: false):
                guard parts.isEmpty else { return .missing }
                interests[try look.watch(file: place), default: []].insert(.target)
                return .present(snapshot)
            }
        }
        interests[try look.watch(directory: directory), default: []].insert(.target)
        guard case .file(let snapshot, _) = look.entry(at: directory) else { return .missing }
        return .present(snapshot)
    }
}
