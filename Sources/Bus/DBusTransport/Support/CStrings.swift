import Glibc

/// The text at `pointer`, or `nil` where C says NULL.
func text(_ pointer: UnsafePointer<CChar>?) -> String? {
    pointer.map { String(cString: $0) }
}

extension String {
    /// Whether C would take it for a shorter text. By `memchr`, because every post asks it several times.
    var containsNUL: Bool {
        utf8.withContiguousStorageIfAvailable { bytes in
            bytes.baseAddress.map { memchr($0, 0, bytes.count) != nil } ?? false
        } ?? utf8.contains(0)
    }
}
