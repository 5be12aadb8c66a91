/// A picture with 8 bits per channel, as a PNG file.
struct PNGImage: Sendable {
    let width: Int
    let height: Int
    /// Red, green, blue, row by row.
    let pixels: [UInt8]
    /// An annotation, for instance `Author` and a name.
    let text: (key: String, value: String)

    /// The file's bytes. The pixels are stored without compression.
    var file: [UInt8] {
        var lines: [UInt8] = []
        for row in 0..<height {
            // The line's filter: none.
            lines.append(0)
            lines += pixels[row * width * 3..<(row + 1) * width * 3]
        }
        let header = Self.bytes(UInt32(width)) + Self.bytes(UInt32(height)) + [8, 2, 0, 0, 0]
        let signature: [UInt8] = [0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A]
        // International text: neither compressed nor translated.
        let annotation = Array(text.key.utf8) + [0, 0, 0, 0, 0] + Array(text.value.utf8)
        return signature + Self.chunk("IHDR", header) + Self.chunk("iTXt", annotation)
            + Self.chunk("IDAT", Self.zlib(lines)) + Self.chunk("IEND", [])
    }

    private static func chunk(_ type: String, _ data: [UInt8]) -> [UInt8] {
        let content = Array(type.utf8) + data
        return bytes(UInt32(data.count)) + content + bytes(checksum(content))
    }

    /// The bytes as a zlib stream of stored blocks.
    private static func zlib(_ data: [UInt8]) -> [UInt8] {
        var stream: [UInt8] = [0x78, 0x01]
        var rest = data[...]
        repeat {
            let block = rest.prefix(65_535)
            rest = rest.dropFirst(block.count)
            let length = UInt16(block.count)
            stream.append(rest.isEmpty ? 1 : 0)
            stream += [UInt8(length & 0xFF), UInt8(length >> 8), UInt8(~length & 0xFF), UInt8(~length >> 8)]
            stream += block
        } while !rest.isEmpty
        return stream + bytes(adler(data))
    }

    private static func adler(_ data: [UInt8]) -> UInt32 {
        var low: UInt32 = 1
        var high: UInt32 = 0
        for byte in data {
            low = (low + UInt32(byte)) % 65_521
            high = (high + low) % 65_521
        }
        return high << 16 | low
    }

    private static let table = (0..<256).map { index -> UInt32 in
        var value = UInt32(index)
        for _ in 0..<8 { value = value & 1 == 1 ? 0xEDB8_8320 ^ (value >> 1) : value >> 1 }
        return value
    }

    private static func checksum(_ data: [UInt8]) -> UInt32 {
        var checksum = ~UInt32(0)
        for byte in data { checksum = table[Int((checksum ^ UInt32(byte)) & 0xFF)] ^ (checksum >> 8) }
        return ~checksum
    }

    private static func bytes(_ value: UInt32) -> [UInt8] {
        [24, 16, 8, 0].map { UInt8(truncatingIfNeeded: value >> UInt32($0)) }
    }
}
