@testable import NotifyDaemon

/// A tree of directories, files and links in memory. A watch's number stands for a place.
struct FakeFileSystem: FileSystemLook {
    enum Node: Hashable {
        case directory
        case file(inode: UInt64)
        case link(String)
        /// A directory that may not be read.
        case locked
    }

    var nodes: [String: Node] = ["/": .directory]
    private(set) var watched: [String] = []

    mutating func watch(directory: FilePath) throws(WatchFailure) -> Watch {
        switch nodes["\(directory)"] {
        case .directory: return number("\(directory)")
        case .locked: throw .denied
        default: throw .missing
        }
    }

    mutating func watch(file: FilePath) throws(WatchFailure) -> Watch {
        guard case .file = nodes["\(file)"] else { throw .missing }
        return number("\(file)")
    }

    func entry(at path: FilePath) -> FileEntry {
        switch nodes["\(path)"] {
        case nil: .missing
        case .directory, .locked: .file(FileSnapshot(), isDirectory: true)
        case .file(let inode): .file(FileSnapshot(inode: inode), isDirectory: false)
        case .link(let target): .link(Array(target.utf8))
        }
    }

    private mutating func number(_ path: String) -> Watch {
        if !watched.contains(path) { watched.append(path) }
        return Watch(watched.firstIndex(of: path) ?? -1)
    }
}

extension PathResolution {
    /// As texts: `place:interest`.
    func texts(_ fileSystem: FakeFileSystem) -> Set<String> {
        var texts: Set<String> = []
        for (watch, interests) in interests {
            let place = fileSystem.watched[Int(watch)]
            for interest in interests {
                switch interest {
                case .entry(let name): texts.insert("\(place):\(String(decoding: name, as: UTF8.self))")
                case .last(let name): texts.insert("\(place):\(String(decoding: name, as: UTF8.self))!")
                case .target: texts.insert("\(place):")
                }
            }
        }
        return texts
    }
}
