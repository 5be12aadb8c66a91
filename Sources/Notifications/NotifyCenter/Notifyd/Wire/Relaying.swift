/// The centers whose posts notifyd relays. The raw value is the prefix of the interfaces of their names.
package enum RelayedCenter: String, Sendable, CaseIterable {
    case darwin = "org.notifycenter.Darwin1"
    case distributed = "org.notifycenter.Distributed1"

    /// The center that an interface belongs to; `nil` for any other interface.
    package init?(interface: String) {
        let center = Self.allCases.first {
            interface == $0.rawValue || interface.utf8.starts(with: "\($0.rawValue).".utf8)
        }
        guard let center else { return nil }
        self = center
    }
}

extension NotifydProtocol {
    private static let relayPrefix = "/org/notifycenter/relayed/"

    /// Returns the path of a connection's relayed posts. Each byte that is neither a letter nor a digit becomes `_` and
    /// two hexadecimal digits.
    package static func relayPath(ofPostsBy connection: String) -> String {
        connection.utf8.reduce(into: relayPrefix) { path, byte in
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"):
                path.unicodeScalars.append(Unicode.Scalar(byte))
            default: path += byte < 16 ? "_0\(String(byte, radix: 16))" : "_\(String(byte, radix: 16))"
            }
        }
    }

    /// Returns the poster in a relayed post's path; `nil` for any other path.
    package static func poster(ofRelayPath path: String) -> String? {
        guard path.utf8.starts(with: relayPrefix.utf8) else { return nil }
        var (bytes, rest) = ([UInt8](), Array(path.utf8.dropFirst(relayPrefix.utf8.count))[...])
        while let byte = rest.popFirst() {
            guard byte == UInt8(ascii: "_") else {
                bytes.append(byte)
                continue
            }
            guard rest.count >= 2, let escaped = UInt8(String(decoding: rest.prefix(2), as: UTF8.self), radix: 16)
            else {
                return nil
            }
            bytes.append(escaped)
            rest.removeFirst(2)
        }
        return bytes.isEmpty ? nil : String(decoding: bytes, as: UTF8.self)
    }
}
