import FoundationEssentials
import Glibc

/// Searches file contents, file names and link targets under a directory for markers. It ignores the case of A to Z.
public struct ByteSearch: Sendable {
    /// An occurrence of a marker.
    public struct Finding: Sendable, Hashable, Codable, CustomStringConvertible {
        /// The file's path, relative to the searched directory.
        public internal(set) var path: String
        /// The marker's ``Marker/kind``.
        public let marker: String
        /// The marker's encoding in the file.
        public let encoding: String
        /// The offset in bytes from the beginning of the file or of the link's target; `nil` if the marker is in the
        /// file's name.
        public internal(set) var offset: Int?

        /// The marker, its encoding and its place.
        public var description: String { "\(marker) (\(encoding)) \(place)" }

        var place: String { "\(offset.map { "at byte \($0)" } ?? "in the name") of \(path)" }
    }

    /// The result of a search.
    public struct Result: Sendable, Hashable, Codable {
        /// A file that was searched.
        public struct File: Sendable, Hashable, Codable {
            /// Its path, relative to the searched directory.
            public let path: String
            /// Its length in bytes; of a link, the length of its target.
            public let bytes: Int
            /// The number of markers in its content and its name.
            public let findings: Int
        }

        /// All files, sorted by name.
        public internal(set) var files: [File] = []
        /// All occurrences, in the order of the files.
        public internal(set) var findings: [Finding] = []
        /// The number of searched bytes.
        public var bytes: Int { files.reduce(0) { $0 + $1.bytes } }

        /// Whether the marker was found. Compares the ``Marker/kind``.
        public func contains(_ marker: Marker) -> Bool { findings.contains { $0.marker == marker.kind } }
    }

    private struct Pattern: Sendable {
        let marker: Marker
        let encoding: Marker.Encoding
        let bytes: [UInt8]

        func finding(in path: String, at offset: Int?) -> Finding {
            Finding(path: path, marker: marker.kind, encoding: encoding.rawValue, offset: offset)
        }
    }

    private let patterns: [Pattern]
    private let longest: Int

    /// Creates a search for these markers. Empty markers are never found.
    public init(_ markers: [Marker]) {
        patterns = markers.filter { !$0.text.isEmpty }.flatMap { marker in
            Marker.Encoding.allCases.map { encoding in
                Pattern(marker: marker, encoding: encoding, bytes: Self.folded(marker.bytes(encoding)))
            }
        }
        longest = patterns.map(\.bytes.count).max() ?? 0
    }

    /// Searches everything under `directory`, or the single file of that path. It may miss concurrent changes: stop the
    /// processes that write there. A file that disappears during the search counts as deleted. For sockets, pipes and
    /// devices it searches only the name. A missing directory counts as empty.
    ///
    /// - Throws: ``TestDeviceError/Code/filesFailed`` if something cannot be read.
    public func run(under directory: String) throws(TestDeviceError) -> Result {
        var result = Result()
        try visit(directory, "", &result)
        return result
    }

    /// Returns the occurrences of the markers in these bytes, with `path` as their path.
    public func findings(in bytes: [UInt8], path: String) -> [Finding] {
        let folded = Self.folded(bytes)
        return patterns.flatMap { pattern in
            Self.offsets(of: pattern.bytes, in: folded).map { pattern.finding(in: path, at: $0) }
        }
    }

    private func visit(_ path: String, _ relative: String, _ result: inout Result) throws(TestDeviceError) {
        var status = stat()
        guard lstat(path, &status) == 0 else {
            if errno == ENOENT || errno == ENOTDIR { return }
            throw Self.failure(path)
        }
        let name = String(relative[(relative.lastIndex(of: "/").map(relative.index(after:)) ?? relative.startIndex)...])
        var inName = findings(in: Array(name.utf8), path: relative)
        for index in inName.indices { inName[index].offset = nil }
        result.findings += inName
        func add(_ inContent: [Finding], _ bytes: Int) {
            result.findings += inContent
            result.files.append(.init(path: relative, bytes: bytes, findings: inName.count + inContent.count))
        }
        switch status.st_mode & S_IFMT {
        case S_IFDIR:
            guard let names = try Self.names(in: path) else { return }
            for name in names { try visit("\(path)/\(name)", relative.isEmpty ? name : "\(relative)/\(name)", &result) }
        case S_IFREG:
            guard let (inContent, bytes) = try search(path, relative) else { return }
            add(inContent, bytes)
        case S_IFLNK:
            let target = (try? FileManager.default.destinationOfSymbolicLink(atPath: path)) ?? ""
            add(findings(in: Array(target.utf8), path: relative), target.utf8.count)
        default: break
        }
    }

    /// Reads the file in pieces, because it may be larger than the memory.
    private func search(
        _ path: String,
        _ relative: String
    ) throws(TestDeviceError) -> (findings: [Finding], bytes: Int)? {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
        guard descriptor >= 0 else {
            if errno == ENOENT { return nil }
            throw Self.failure(path)
        }
        defer { close(descriptor) }
        var found: [Finding] = []
        // The end of the previous piece, which may be the beginning of a marker.
        var carried: [UInt8] = []
        var start = 0
        var piece = [UInt8](repeating: 0, count: 1 << 20)
        while true {
            let count = read(descriptor, &piece, piece.count)
            if count < 0 {
                if errno == EINTR { continue }
                throw Self.failure(path)
            }
            if count == 0 { break }
            let bytes = carried + Self.folded(Array(piece[..<count]))
            for pattern in patterns {
                for offset in Self.offsets(of: pattern.bytes, in: bytes)
                where offset + pattern.bytes.count > carried.count {
                    found.append(pattern.finding(in: relative, at: start - carried.count + offset))
                }
            }
            start += count
            carried = Array(bytes.suffix(max(0, longest - 1)))
        }
        return (found, start)
    }

    private static func names(in directory: String) throws(TestDeviceError) -> [String]? {
        do {
            return try FileManager.default.contentsOfDirectory(atPath: directory).sorted()
        } catch {
            guard FileManager.default.fileExists(atPath: directory) else { return nil }
            throw TestDeviceError(.filesFailed, "could not search \(directory): \(error)")
        }
    }

    private static func failure(_ path: String) -> TestDeviceError {
        TestDeviceError(.filesFailed, "could not search \(path): \(String(cString: strerror(errno)))")
    }

    /// Converts A to Z to lower case. In UTF-16 other bytes may change too, identically in markers and files.
    private static func folded(_ bytes: [UInt8]) -> [UInt8] { bytes.map { $0 >= 0x41 && $0 <= 0x5A ? $0 | 0x20 : $0 } }

    private static func offsets(of pattern: [UInt8], in bytes: [UInt8]) -> [Int] {
        // Zero is the most frequent byte of files, and half of the bytes in UTF-16.
        guard let anchor = pattern.firstIndex(where: { $0 != 0 }) else { return [] }
        return bytes.withUnsafeBytes { content in
            guard let base = content.baseAddress else { return [] }
            var offsets: [Int] = []
            var position = anchor
            while position < content.count,
                let found = memchr(base + position, CInt(pattern[anchor]), content.count - position)
            {
                position = base.distance(to: UnsafeRawPointer(found))
                let start = position - anchor
                if start + pattern.count <= content.count, memcmp(base + start, pattern, pattern.count) == 0 {
                    offsets.append(start)
                }
                position += 1
            }
            return offsets
        }
    }
}

/// A string by which a search recognizes a user's data.
public struct Marker: Sendable, Hashable, ExpressibleByStringLiteral {
    /// The encoding of a marker in a file.
    public enum Encoding: String, Sendable, CaseIterable {
        /// One or more bytes per character.
        case utf8 = "UTF-8"
        /// Two or four bytes per character, in little-endian order.
        case utf16LittleEndian = "UTF-16 (little-endian)"
        /// Two or four bytes per character, in big-endian order.
        case utf16BigEndian = "UTF-16 (big-endian)"
    }

    /// Its kind in reports, for instance “user name”.
    public let kind: String
    /// The string itself. Choose a distinctive one: “ada” occurs in every tenth hexadecimal identifier.
    public let text: String

    /// Creates a marker that findings show as `kind`.
    public init(kind: String, text: String) { (self.kind, self.text) = (kind, text) }

    /// Creates a marker that findings show as its text.
    public init(_ text: String) { self.init(kind: "“\(text)”", text: text) }

    /// Creates a marker that findings show as its text.
    public init(stringLiteral text: String) { self.init(text) }

    /// Returns the bytes of the marker in a file.
    public func bytes(_ encoding: Encoding) -> [UInt8] {
        switch encoding {
        case .utf8: Array(text.utf8)
        case .utf16LittleEndian: text.utf16.flatMap { [UInt8($0 & 0xFF), UInt8($0 >> 8)] }
        case .utf16BigEndian: text.utf16.flatMap { [UInt8($0 >> 8), UInt8($0 & 0xFF)] }
        }
    }
}

enum DirectoryCopy {
    /// Copies files, directories and links. Skips what disappears or is unreadable: a search finds less, never more.
    static func copy(_ source: String, to target: String) {
        var status = stat()
        guard lstat(source, &status) == 0 else { return }
        let files = FileManager.default
        switch status.st_mode & S_IFMT {
        case S_IFDIR:
            guard (try? files.createDirectory(atPath: target, withIntermediateDirectories: true)) != nil else { return }
            for name in (try? files.contentsOfDirectory(atPath: source)) ?? [] {
                copy("\(source)/\(name)", to: "\(target)/\(name)")
            }
        case S_IFREG: copyFile(source, to: target, size: Int(status.st_size))
        case S_IFLNK: try? files.copyItem(atPath: source, toPath: target)
        default: break
        }
    }

    /// Copies at most `size` bytes. Foundation's copy never ends if the file is truncated meanwhile, as by a database.
    private static func copyFile(_ source: String, to target: String, size: Int) {
        let from = open(source, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
        guard from >= 0 else { return }
        defer { close(from) }
        let to = open(target, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
        guard to >= 0 else { return }
        defer { close(to) }
        var left = size
        while left > 0 {
            let count = sendfile(to, from, nil, left)
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { return }
            left -= count
        }
    }
}
