/// A string by which somebody's data is known.
struct Marker: Sendable, Hashable {
    /// How it was written into a file.
    enum Encoding: String, Sendable, CaseIterable {
        case utf8 = "UTF-8"
        case utf16LittleEndian = "UTF-16 (little-endian)"
        case utf16BigEndian = "UTF-16 (big-endian)"
    }

    /// What it is, for people: “user name”.
    let kind: String
    let text: String

    func bytes(_ encoding: Encoding) -> [UInt8] {
        switch encoding {
        case .utf8: Array(text.utf8)
        case .utf16LittleEndian: text.utf16.flatMap { [UInt8($0 & 0xFF), UInt8($0 >> 8)] }
        case .utf16BigEndian: text.utf16.flatMap { [UInt8($0 >> 8), UInt8($0 & 0xFF)] }
        }
    }
}
