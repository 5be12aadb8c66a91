import Glibc
import NotifyCenter

/// Reads JSON (RFC 8259, without extensions) as a property list, for `--userinfo`. Refuses `null`, because a property
/// list has none, and an object that has a key twice. Whole numbers become integers if 64 bits hold them.
struct JSONReader {
    struct SyntaxError: Error, Equatable {
        /// In bytes from the start of the text.
        let offset: Int
        let reason: String
    }

    /// More than a notification may be nested, so that the post itself reports the limit.
    private static let maximumDepth = 64

    private let bytes: [UInt8]
    private var position = 0

    private init(_ text: String) { bytes = Array(text.utf8) }

    static func read(_ text: String) throws(SyntaxError) -> PropertyListValue {
        var reader = JSONReader(text)
        let value = try reader.value(depth: 0)
        reader.skipSpace()
        guard reader.next == nil else { throw reader.malformed("something follows the value") }
        return value
    }

    // MARK: Bytes

    private var next: UInt8? { position < bytes.count ? bytes[position] : nil }

    private func malformed(_ reason: String) -> SyntaxError { SyntaxError(offset: position, reason: reason) }

    private mutating func skipSpace() {
        while let byte = next, [0x20, 0x09, 0x0A, 0x0D].contains(byte) { position += 1 }
    }

    private mutating func take(_ character: Unicode.Scalar) -> Bool {
        guard next == UInt8(ascii: character) else { return false }
        position += 1
        return true
    }

    private mutating func expect(_ character: Unicode.Scalar) throws(SyntaxError) {
        guard take(character) else { throw malformed("“\(character)” is missing") }
    }

    // MARK: Values

    private mutating func value(depth: Int) throws(SyntaxError) -> PropertyListValue {
        guard depth <= Self.maximumDepth else { throw malformed("the value is nested too deep") }
        skipSpace()
        guard let next else { throw malformed("a value is missing") }
        switch next {
        case UInt8(ascii: "{"): return try object(depth: depth)
        case UInt8(ascii: "["): return try array(depth: depth)
        case UInt8(ascii: "\""): return .string(try string())
        case UInt8(ascii: "t"): return .bool(try word("true", true))
        case UInt8(ascii: "f"): return .bool(try word("false", false))
        case UInt8(ascii: "n"):
            let start = self
            try word("null", ())
            throw start.malformed("a property list cannot hold null")
        case UInt8(ascii: "-"), UInt8(ascii: "0")...UInt8(ascii: "9"): return try number()
        default: throw malformed("a value cannot begin like this")
        }
    }

    private mutating func object(depth: Int) throws(SyntaxError) -> PropertyListValue {
        var members: UserInfo = [:]
        try expect("{")
        skipSpace()
        if take("}") { return .dictionary(members) }
        repeat {
            skipSpace()
            let start = self
            guard next == UInt8(ascii: "\"") else { throw malformed("a key is missing") }
            let key = try string()
            skipSpace()
            try expect(":")
            let value = try value(depth: depth + 1)
            guard members.updateValue(value, forKey: key) == nil else {
                throw start.malformed("the key occurs twice")
            }
            skipSpace()
        } while take(",")
        try expect("}")
        return .dictionary(members)
    }

    private mutating func array(depth: Int) throws(SyntaxError) -> PropertyListValue {
        var elements: [PropertyListValue] = []
        try expect("[")
        skipSpace()
        if take("]") { return .array(elements) }
        repeat {
            elements.append(try value(depth: depth + 1))
            skipSpace()
        } while take(",")
        try expect("]")
        return .array(elements)
    }

    private mutating func word<Value>(_ word: String, _ value: Value) throws(SyntaxError) -> Value {
        guard bytes[position...].starts(with: word.utf8) else { throw malformed("a value cannot begin like this") }
        position += word.utf8.count
        return value
    }

    // MARK: Numbers

    private mutating func digits() throws(SyntaxError) {
        let start = position
        while let byte = next, (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) { position += 1 }
        guard position > start else { throw malformed("a digit is missing") }
    }

    private mutating func number() throws(SyntaxError) -> PropertyListValue {
        let start = self
        var isWhole = true
        _ = take("-")
        if !take("0") { try digits() }
        if take(".") {
            isWhole = false
            try digits()
        }
        if take("e") || take("E") {
            isWhole = false
            _ = take("+") || take("-")
            try digits()
        }
        let text = String(decoding: bytes[start.position..<position], as: UTF8.self)
        if isWhole {
            if let number = Int64(text) { return .integer(number) }
            if let number = UInt64(text) { return .unsigned(number) }
        }
        let number = strtod(text, nil)
        guard number.isFinite else { throw start.malformed("the number is too large") }
        return .double(number)
    }

    // MARK: Strings

    private mutating func string() throws(SyntaxError) -> String {
        try expect("\"")
        var result: [UInt8] = []
        while let byte = next {
            switch byte {
            case UInt8(ascii: "\""):
                position += 1
                // The bytes come from a String and from escapes, so they are UTF-8.
                return String(decoding: result, as: UTF8.self)
            case UInt8(ascii: "\\"):
                result += Array(String(try escape()).utf8)
            case 0..<0x20:
                throw malformed("a control character must be written as an escape")
            default:
                result.append(byte)
                position += 1
            }
        }
        throw malformed("the end of a string is missing")
    }

    private mutating func escape() throws(SyntaxError) -> Unicode.Scalar {
        let start = self
        try expect("\\")
        guard let letter = next else { throw malformed("the end of a string is missing") }
        position += 1
        switch letter {
        case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"): return Unicode.Scalar(letter)
        case UInt8(ascii: "b"): return "\u{8}"
        case UInt8(ascii: "f"): return "\u{C}"
        case UInt8(ascii: "n"): return "\n"
        case UInt8(ascii: "r"): return "\r"
        case UInt8(ascii: "t"): return "\t"
        case UInt8(ascii: "u"):
            var code = try codeUnit()
            if (0xD800..<0xDC00).contains(code), bytes[position...].starts(with: "\\u".utf8) {
                position += 2
                let low = try codeUnit()
                guard (0xDC00..<0xE000).contains(low) else {
                    throw start.malformed("half of a surrogate pair is missing")
                }
                code = 0x10000 + (code - 0xD800) << 10 + (low - 0xDC00)
            }
            guard let scalar = Unicode.Scalar(code) else {
                throw start.malformed("half of a surrogate pair is missing")
            }
            return scalar
        default: throw start.malformed("this escape does not exist")
        }
    }

    private mutating func codeUnit() throws(SyntaxError) -> UInt32 {
        let digits = bytes[position...].prefix(4)
        let isNumber = digits.allSatisfy { Unicode.Scalar($0).properties.isASCIIHexDigit }
        guard digits.count == 4, isNumber, let code = UInt32(String(decoding: digits, as: UTF8.self), radix: 16) else {
            throw malformed("four hexadecimal digits are missing")
        }
        position += 4
        return code
    }
}
