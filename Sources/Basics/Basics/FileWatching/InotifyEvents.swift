import Glibc

struct InotifyEvents {
    private let descriptor: CInt
    private var buffer = [UInt8](repeating: 0, count: 65_536)

    init(_ descriptor: CInt) { self.descriptor = descriptor }

    /// Passes the pending events to `body`. The number of reads is limited, because events may arrive faster than they
    /// are read.
    mutating func drain(_ body: (WatchEvent) -> Void) {
        for _ in 0..<16 {
            let count = read(descriptor, &buffer, buffer.count)
            guard count > 0 else {
                return
            }
            Self.parse(buffer[..<count], body)
        }
    }

    /// The format is that of inotify(7): watch, mask, cookie, length of the name in 32 bits each; then the name, padded
    /// with zeros.
    static func parse(_ bytes: ArraySlice<UInt8>, _ body: (WatchEvent) -> Void) {
        var rest = bytes
        func number(_ offset: Int) -> UInt32 {
            rest.withUnsafeBytes { $0.loadUnaligned(fromByteOffset: offset, as: UInt32.self) }
        }
        while rest.count >= 16 {
            let length = Int(number(12))
            guard rest.count >= 16 + length else { return }
            let name = rest.dropFirst(16).prefix(length).prefix { $0 != 0 }
            body(
                WatchEvent(
                    watch: Watch(bitPattern: number(0)),
                    mask: number(4),
                    name: name.isEmpty ? nil : Array(name)
                )
            )
            rest = rest.dropFirst(16 + length)
        }
    }
}
