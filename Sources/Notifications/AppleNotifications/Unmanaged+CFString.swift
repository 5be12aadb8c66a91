import DBusTransport
import Synchronization

extension Unmanaged where Instance == CFString {
    /// As the standard library's for any object, but that the string lives on until 64 others came after it.
    ///
    /// `Unmanaged.passUnretained("…" as CFString).toOpaque()` is how the object of a distributed notification is written. On Apple the
    /// string is still there when the pointer is used, because the system keeps such strings; on Linux it would have ended by
    /// then, and its memory might be another's.
    public static func passUnretained(_ value: CFString) -> Unmanaged<CFString> {
        let value = RecentString(string: value)
        let displaced = recentStrings.withLock { $0.keep(value) }
        // Not under the lock: somebody's own class of strings may run code when one ends.
        withExtendedLifetime(displaced) {}
        return fromOpaque(Unmanaged<AnyObject>.passUnretained(value.string).toOpaque())
    }
}

private let recentStrings = Locked(RecentStrings())

/// Unchecked, because it is held and let go of, and not looked at.
private struct RecentString: @unchecked Sendable {
    let string: CFString
}

private struct RecentStrings {
    private static let capacity = 64
    private var strings: [RecentString] = []
    private var oldest = 0

    /// Returns the string that it displaces.
    mutating func keep(_ string: RecentString) -> RecentString? {
        // One string that is posted time and again takes one place.
        if strings.contains(where: { $0.string === string.string }) { return nil }
        guard strings.count == Self.capacity else {
            strings.append(string)
            return nil
        }
        let displaced = strings[oldest]
        strings[oldest] = string
        oldest = (oldest + 1) % Self.capacity
        return displaced
    }
}
