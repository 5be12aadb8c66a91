import ExampleSupport
import Foundation
import Glibc

/// Searches every byte of every file under a directory, and the files' names, for markers. Case does not count.
struct ByteSearch: Sendable {
    /// A place where a marker is.
    struct Finding: Sendable, Codable {
        let path: String
        let marker: String
        let encoding: String
        /// In bytes from the file's beginning; `nil` where it is in the file's name.
        let offset: Int?
    }

    /// What one search saw.
    struct Result: Sendable, Codable {
        struct File: Sendable, Codable {
            let path: String
            let bytes: Int
            let findings: Int
        }

        var files: [File] = []
        var findings: [Finding] = []
        var bytes: Int { files.reduce(0) { $0 + $1.bytes } }

        func contains(_ marker: Marker) -> Bool { findings.contains { $0.marker == marker.kind } }
    }

    private struct Pattern: Sendable {
        let marker: Marker
        let encoding: Marker.Encoding
        let bytes: [UInt8]
    }

    private let patterns: [Pattern]

    init(_ markers: [Marker]) {
        patterns = markers.flatMap { marker in
            Marker.Encoding.allCases.map { encoding in
                Pattern(marker: marker, encoding: encoding, bytes: Self.folded(marker.bytes(encoding)))
            }
        }
    }

    /// Searches what is under `directory`; the paths in the result are relative to it. Nobody may write there meanwhile.
    func run(under directory: String) throws -> Result {
        var result = Result()
        try visit(directory, "", &result)
        return result
    }

    /// Where the markers are in these bytes.
    func findings(in bytes: [UInt8], path: String) -> [Finding] {
        let folded = Self.folded(bytes)
        return patterns.flatMap { pattern in
            Self.offsets(of: pattern.bytes, in: folded).map {
                Finding(path: path, marker: pattern.marker.kind, encoding: pattern.encoding.rawValue, offset: $0)
            }
        }
    }

    private func visit(_ directory: String, _ prefix: String, _ result: inout Result) throws {
        for name in try Files.names(in: directory) {
            let path = "\(directory)/\(name)"
            let relative = prefix + name
            let inName = findings(in: Array(name.utf8), path: relative).map {
                Finding(path: $0.path, marker: $0.marker, encoding: $0.encoding, offset: nil)
            }
            result.findings += inName
            var status = stat()
            guard lstat(path, &status) == 0 else { throw FileFailure("search", path) }
            switch status.st_mode & S_IFMT {
            case S_IFDIR:
                try visit(path, relative + "/", &result)
            case S_IFREG:
                let bytes = [UInt8](try Data(contentsOf: URL(fileURLWithPath: path)))
                let inContent = findings(in: bytes, path: relative)
                result.findings += inContent
                let count = inName.count + inContent.count
                result.files.append(Result.File(path: relative, bytes: bytes.count, findings: count))
            default:
                throw FileFailure("search", path, reason: "it is neither a file nor a directory")
            }
        }
    }

    /// Letters A to Z as small ones, in markers and files alike; in UTF-16 too, whose other bytes change alike on both sides.
    private static func folded(_ bytes: [UInt8]) -> [UInt8] {
        bytes.map { $0 >= 0x41 && $0 <= 0x5A ? $0 | 0x20 : $0 }
    }

    private static func offsets(of pattern: [UInt8], in bytes: [UInt8]) -> [Int] {
        // Zeros are what files have most of, and what half of UTF-16 is.
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
