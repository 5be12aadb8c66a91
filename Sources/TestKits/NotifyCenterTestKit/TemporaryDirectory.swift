import Foundation

/// A directory that ends with this object.
public final class TemporaryDirectory: Sendable {
    /// Its absolute path.
    public let path: String

    /// Makes one, readable by this user only.
    public init(_ name: String) throws {
        path = NSTemporaryDirectory() + "\(name)-\(UUID().uuidString.prefix(8))"
        try FileManager.default.createDirectory(
            atPath: path,
            withIntermediateDirectories: true,
            attributes: [.posixPermissions: 0o700]
        )
    }

    deinit {
        // What cannot be removed is left to the system's cleaning of temporary files.
        try? FileManager.default.removeItem(atPath: path)
    }
}
