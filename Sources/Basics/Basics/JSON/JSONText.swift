extension JSONValue {
    /// The canonical text of the value: members sorted by name, no spaces. Parsing it returns the same value.
    public var text: String {
        var bytes: [UInt8] = []
        write(to: &bytes)
        return String(decoding: bytes, as: UTF8.self)
    }

    private func write(to bytes: inout [UInt8]) {
        switch self {
        case .object(let members):
            Self.write("{", "}", members.sorted { $0.key < $1.key }, to: &bytes) { member, bytes in
                Self.write(member.key, to: &bytes)
                bytes.append(UInt8(ascii: ":"))
                member.value.write(to: &bytes)
            }
        case .array(let elements): Self.write("[", "]", elements, to: &bytes) { $0.write(to: &$1) }
        case .string(let text): Self.write(text, to: &bytes)
        // Whole numbers up to 2^53 are exact; other numbers may have a fraction or an exponent.
        case .number(let number): bytes += (Int64(exactly: number).map { "\($0)" } ?? "\(number)").utf8
        case .boolean(let value): bytes += (value ? "true" : "false").utf8
        case .null: bytes += "null".utf8
        }
    }

    private static func write<Part>(
        _ start: Unicode.Scalar,
        _ end: Unicode.Scalar,
        _ parts: [Part],
        to bytes: inout [UInt8],
        each: (Part, inout [UInt8]) -> Void
    ) {
        bytes.append(UInt8(ascii: start))
        for (index, part) in parts.enumerated() {
            if index > 0 { bytes.append(UInt8(ascii: ",")) }
            each(part, &bytes)
        }
        bytes.append(UInt8(ascii: end))
    }

    private static func write(_ text: String, to bytes: inout [UInt8]) {
        let digits = Array("0123456789abcdef".utf8)
        bytes.append(UInt8(ascii: "\""))
        for byte in text.utf8 {
            switch byte {
            case UInt8(ascii: "\""), UInt8(ascii: "\\"): bytes += [UInt8(ascii: "\\"), byte]
            case 0..<0x20: bytes += "\\u00".utf8 + [digits[Int(byte >> 4)], digits[Int(byte & 0xF)]]
            default: bytes.append(byte)
            }
        }
        bytes.append(UInt8(ascii: "\""))
    }

    /// A whole number from 0 to 2⁵³ - 1, which every JSON reader represents exactly; otherwise `nil`.
    public var wholeNumber: UInt64? {
        guard let number, number < 0x1p53 else { return nil }
        return UInt64(exactly: number)
    }

    /// A whole number. Numbers above 2⁵³ lose precision.
    public static func number(_ value: some BinaryInteger) -> JSONValue { .number(Double(value)) }
}
