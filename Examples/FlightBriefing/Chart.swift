/// A chart of the route: heights on a grid, with the crew member's annotation, in a binary form of the app's own.
///
/// `CHRT`, width and height (16 bits each, little-endian), length of the annotation (16 bits), the annotation in UTF-8, then
/// one byte a cell, row by row.
struct Chart: Sendable {
    static let width = 256
    static let height = 192

    let seed: Int
    let annotation: String

    var header: [UInt8] {
        let text = Array(annotation.utf8)
        return Array("CHRT".utf8) + Self.bytes(Self.width) + Self.bytes(Self.height) + Self.bytes(text.count) + text
    }

    func row(_ row: Int) -> [UInt8] { (0..<Self.width).map { height(column: $0, row: row) } }

    /// A small picture of it: a portable pixmap, whose comment says whose it is.
    func thumbnail(comment: String) -> [UInt8] {
        let scale = 8
        let header = "P6\n# \(comment)\n\(Self.width / scale) \(Self.height / scale)\n255\n"
        var bytes = Array(header.utf8)
        for row in stride(from: 0, to: Self.height, by: scale) {
            for column in stride(from: 0, to: Self.width, by: scale) {
                let height = height(column: column, row: row)
                bytes += height < 90 ? [30, 60, 120 + height] : [height, 150, 60]
            }
        }
        return bytes
    }

    private func height(column: Int, row: Int) -> UInt8 {
        // Two triangle waves across each other: hills enough for an example.
        func wave(_ value: Int, _ period: Int) -> Int { abs(value % period - period / 2) * 220 / period }
        return UInt8(clamping: wave(column * 3 + seed * 17, 200) + wave(row * 2 + column + seed * 31, 170))
    }

    private static func bytes(_ value: Int) -> [UInt8] {
        [UInt8(truncatingIfNeeded: value), UInt8(truncatingIfNeeded: value >> 8)]
    }
}
