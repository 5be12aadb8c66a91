import Glibc

/// The D-Bus interface that carries a notification's name (architecture, D1).
///
/// The escaped name is the tail of the interface. The bus can then find receivers by hash, and its policy can refer to
/// names. Letters stay as they are, and so do digits and dots where D-Bus allows them, and underscores before a letter,
/// a digit or the end. Any other byte becomes `__` and two hexadecimal digits. `SHARED_MODE_CURRENT_ACCOUNT_CHANGED`
/// and `com.example.Menu_opened` stay unchanged; `my-app` becomes `my__2dapp`. The escape is injective. The empty name
/// is `__`. A name that does not fit into D-Bus's 255 bytes is `__h` and a digest. The receiver always compares the
/// true names, and so distinguishes names with the same digest.
struct InterfaceName: Hashable, CustomStringConvertible {
    let description: String

    /// D-Bus specification, "Valid Names".
    private static let maximumLength = 255

    /// - Parameter prefix: a valid interface name. The tail follows it after a dot.
    init(_ name: NotificationName, prefix: StaticString) {
        // Escaping never shortens a name: a name that is already too long is not escaped first.
        guard name.rawValue.utf8.count <= Self.maximumLength else {
            description = "\(prefix).__h\(Self.digest(name.rawValue))"
            return
        }
        let tail = Self.isPlain(name.rawValue) ? name.rawValue : Self.escaped(name.rawValue)
        let full = "\(prefix).\(tail)"
        description = full.utf8.count <= Self.maximumLength ? full : "\(prefix).__h\(Self.digest(name.rawValue))"
    }

    /// Whether `interface` is the interface of `name`. No strings are allocated for names that need no escape.
    static func isInterface(
        _ interface: UnsafeBufferPointer<UInt8>,
        of name: NotificationName,
        prefix: StaticString
    ) -> Bool {
        var text = name.rawValue
        let head = prefix.utf8CodeUnitCount + 1
        guard isPlain(text), head + text.utf8.count <= maximumLength else {
            return InterfaceName(name, prefix: prefix).description.utf8.elementsEqual(interface)
        }
        return interface.count == head + text.utf8.count && hasPrefix(interface, prefix)
            && text.withUTF8 { tail in interface[head...].elementsEqual(tail) }
    }

    /// Whether `interface` begins with `prefix` and a dot.
    static func hasPrefix(_ interface: UnsafeBufferPointer<UInt8>, _ prefix: StaticString) -> Bool {
        let count = prefix.utf8CodeUnitCount
        guard interface.count > count, interface[count] == UInt8(ascii: "."), let start = interface.baseAddress else {
            return false
        }
        return memcmp(start, prefix.utf8Start, count) == 0
    }

    /// Returns the name of an interface; `nil` if the interface has the name's digest or is not the interface of a
    /// name.
    static func name(of interface: String, prefix: StaticString) -> NotificationName? {
        let head = "\(prefix)."
        guard interface.utf8.starts(with: head.utf8) else { return nil }
        var (bytes, rest) = ([UInt8](), Array(interface.utf8.dropFirst(head.utf8.count))[...])
        if rest.elementsEqual("__".utf8) { rest = [] }
        while let byte = rest.popFirst() {
            guard byte == UInt8(ascii: "_"), rest.first == byte else {
                bytes.append(byte)
                continue
            }
            guard let escaped = UInt8(String(decoding: rest.dropFirst().prefix(2), as: UTF8.self), radix: 16) else {
                return nil
            }
            bytes.append(escaped)
            rest = rest.dropFirst(3)
        }
        let name = NotificationName(String(decoding: bytes, as: UTF8.self))
        return InterfaceName(name, prefix: prefix).description == interface ? name : nil
    }

    /// Whether a name needs no escape.
    private static func isPlain(_ name: String) -> Bool {
        var name = name
        return name.withUTF8 { bytes in
            var startsElement = true
            for index in bytes.indices {
                let next = index + 1 < bytes.count ? bytes[index + 1] : nil
                guard isPlain(bytes[index], next: next, startsElement: startsElement) else { return false }
                startsElement = bytes[index] == UInt8(ascii: ".")
            }
            return !bytes.isEmpty
        }
    }

    private static func escaped(_ name: String) -> String {
        guard !name.isEmpty else { return "__" }
        let bytes = Array(name.utf8)
        var output: [UInt8] = []
        output.reserveCapacity(bytes.count + 16)
        var startsElement = true
        for (index, byte) in bytes.enumerated() {
            let next = index + 1 < bytes.count ? bytes[index + 1] : nil
            if isPlain(byte, next: next, startsElement: startsElement) {
                output.append(byte)
                startsElement = byte == UInt8(ascii: ".")
            } else {
                output += [UInt8(ascii: "_"), UInt8(ascii: "_"), hexadecimal(byte >> 4), hexadecimal(byte & 15)]
                startsElement = false
            }
        }
        return String(decoding: output, as: UTF8.self)
    }

    /// Whether a byte needs no escape. An underscore needs none before a letter, a digit or the end, because two
    /// underscores begin an escape. A dot needs none between two elements.
    private static func isPlain(_ byte: UInt8, next: UInt8?, startsElement: Bool) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"): true
        case UInt8(ascii: "0")...UInt8(ascii: "9"): !startsElement
        case UInt8(ascii: "."): !startsElement && next != nil
        case UInt8(ascii: "_"): next.map(isAlphanumeric) ?? true
        default: false
        }
    }

    private static func isAlphanumeric(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"):
            true
        default: false
        }
    }

    private static func hexadecimal(_ digit: UInt8) -> UInt8 {
        digit < 10 ? UInt8(ascii: "0") + digit : UInt8(ascii: "a") + digit - 10
    }

    /// FNV-1a, 64 bits: enough to spread names over the bus's hash table. It is not a cryptographic hash.
    private static func digest(_ name: String) -> String {
        let hash = name.utf8.reduce(0xcbf2_9ce4_8422_2325 as UInt64) { ($0 ^ UInt64($1)) &* 0x100_0000_01b3 }
        let digits = String(hash, radix: 16)
        return String(repeating: "0", count: 16 - digits.count) + digits
    }
}
