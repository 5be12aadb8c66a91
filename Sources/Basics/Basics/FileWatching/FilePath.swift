/// An absolute path. Stored as bytes, as in the kernel.
public struct FilePath: Hashable, Sendable {
    /// The name of one entry of a directory.
    typealias Name = [UInt8]

    public let bytes: [UInt8]

    static let root = FilePath(bytes: [slash])
    private static let slash = UInt8(ascii: "/")

    private init(bytes: [UInt8]) { self.bytes = bytes }

    public init(_ text: String) { bytes = Array(text.utf8) }

    func appending(_ name: Name) -> FilePath {
        FilePath(bytes: bytes == [Self.slash] ? bytes + name : bytes + [Self.slash] + name)
    }

    /// The parent directory, for a path without links and dots. The root is its own parent.
    var parent: FilePath {
        guard let last = bytes.lastIndex(of: Self.slash), last > 0 else { return .root }
        return FilePath(bytes: Array(bytes[..<last]))
    }

    /// Returns the names of the entries in a text, without `.`.
    static func names(in bytes: [UInt8]) -> [Name] {
        bytes.split(separator: slash).map(Array.init).filter { $0 != [UInt8(ascii: ".")] }
    }

    static func isAbsolute(_ bytes: [UInt8]) -> Bool { bytes.first == slash }

    static let upwards: Name = Array("..".utf8)

    func withCString<Result>(_ body: (UnsafePointer<CChar>) -> Result) -> Result {
        (bytes + [0]).withUnsafeBytes { buffer in
            // Not empty: the buffer ends with the zero.
            body(buffer.assumingMemoryBound(to: CChar.self).baseAddress!)
        }
    }
}

extension FilePath: CustomStringConvertible {
    public var description: String { String(decoding: bytes, as: UTF8.self) }
}
