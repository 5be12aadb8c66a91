/// The name of an account's directory. Different identifiers have different names, also where the file system takes upper and lower
/// case for the same; no name leads out of the directory that holds it.
///
/// Lower-case letters, digits and `-` stand for themselves, and so does `.` but at the beginning; every other byte is `_` and two
/// hexadecimal digits. The empty identifier is a single `_`.
enum AccountDirectoryName {
    /// The longest name that file systems take.
    static let limit = 255

    /// The name; `nil` where it would be longer than ``limit``.
    static func name(for identifier: String) -> String? {
        guard !identifier.isEmpty else { return "_" }
        var name: [UInt8] = []
        for byte in identifier.utf8 {
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"):
                name.append(byte)
            case UInt8(ascii: ".") where !name.isEmpty:
                name.append(byte)
            default:
                name += [UInt8(ascii: "_"), digit(byte >> 4), digit(byte & 15)]
            }
            guard name.count <= limit else { return nil }
        }
        return String(decoding: name, as: UTF8.self)
    }

    private static func digit(_ value: UInt8) -> UInt8 {
        value < 10 ? UInt8(ascii: "0") + value : UInt8(ascii: "a") + value - 10
    }
}
