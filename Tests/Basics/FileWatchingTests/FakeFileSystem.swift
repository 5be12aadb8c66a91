@testable import Basics

/// A tree of directories, files and links in memory. A watch is the index of its path in ``watched``.
struct FakeFileSystem: FileSystemLook {
    enum Node: Hashable {
        case directory
        case file(inode: UInt64)
        case link(String)
        /// A directory that may be searched, but not read.
        case locked
        /// A directory that may neither be read nor searched.
        case closed
        /// A file that may not be read.
        case secret(inode: UInt64)
    }

    var nodes: [String: Node] = ["/": .directory]
    private(set) var watched: [String] = []

    mutating func watch(_ path: FilePath, _ kind: WatchKind) throws(WatchFailure) -> Watch {
        switch (nodes["\(path)"], kind) {
        case (.directory, .directory), (.file, .file): return number("\(path)")
        case (.directory, .writesInDirectory): return number("\(path) writes")
        case (.locked, .directory), (.locked, .writesInDirectory), (.closed, .directory), (.closed, .writesInDirectory),
            (.secret, .file):
            throw .denied
        default: throw .missing
        }
    }

    func entry(at path: FilePath) -> FileEntry {
        if nodes["\(path.parent)"] == .closed, "\(path)" != "/" { return .denied }
        return switch nodes["\(path)"] {
        case nil: .missing
        case .directory, .locked, .closed: .file(FileSnapshot(), isDirectory: true)
        case .file(let inode), .secret(let inode): .file(FileSnapshot(inode: inode), isDirectory: false)
        case .link(let target): .link(Array(target.utf8))
        }
    }

    private mutating func number(_ path: String) -> Watch {
        if !watched.contains(path) { watched.append(path) }
        return Watch(watched.firstIndex(of: path) ?? -1)
    }
}

extension PathResolution {
    /// Returns the interests as texts, `path:entry`. An exclamation mark follows an entry that is the last of its path.
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
