import Glibc

/// A file that could not be read, written or removed.
package struct FileFailure: Error, CustomStringConvertible {
    /// What was attempted, on which path, and the system's reason.
    package let description: String

    /// The failure that `errno` tells of.
    package init(_ attempted: String, _ path: String) {
        self.init(attempted, path, reason: String(cString: strerror(errno)))
    }

    /// A failure for another reason.
    package init(_ attempted: String, _ path: String, reason: String) {
        description = "could not \(attempted) \(path): \(reason)"
    }
}
