/// The forms of an app's identifier.
enum AppIdentifier {
    /// The longest that is taken, in bytes, as for names on a bus.
    static let maximumLength = 255

    /// Whether it has two parts or more with dots between, each of letters, digits, `-` and `_`.
    static func isReverseDNS(_ identifier: String) -> Bool {
        let parts = identifier.utf8.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        return identifier.utf8.count <= maximumLength && parts.count >= 2
            && parts.allSatisfy { part in !part.isEmpty && part.allSatisfy(isPartOfName) }
    }

    /// Whether a program may say that this is its identifier: printable ASCII without blanks, so that it is one word in every
    /// log.
    static func isPlausible(_ identifier: String) -> Bool {
        (1...maximumLength).contains(identifier.utf8.count) && identifier.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F }
    }

    private static func isPartOfName(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"):
            true
        default: false
        }
    }
}
