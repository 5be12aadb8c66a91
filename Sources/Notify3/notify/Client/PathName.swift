import NotifyCenter

/// A name that says which path its registration monitors: `com.apple.system.notify.service.path:[FLAGS:]PATH` (notify(3), a.4).
struct PathName: Equatable {
    private static let prefix = "com.apple.system.notify.service.path:"

    let path: String
    /// Of `notify_private.h`, as a decimal number or, after `0x`, a hexadecimal one; 0 for all.
    let flags: UInt32

    /// `nil` for any other name.
    init?(_ name: NotificationName) {
        guard name.rawValue.hasPrefix(Self.prefix) else { return nil }
        let rest = name.rawValue.dropFirst(Self.prefix.count)
        guard let colon = rest.firstIndex(of: ":"), let flags = Self.number(rest[..<colon]) else {
            (path, flags) = (String(rest), 0)
            return
        }
        (path, self.flags) = (String(rest[rest.index(after: colon)...]), flags)
    }

    private static func number(_ text: Substring) -> UInt32? {
        text.hasPrefix("0x") ? UInt32(text.dropFirst(2), radix: 16) : UInt32(text)
    }
}
