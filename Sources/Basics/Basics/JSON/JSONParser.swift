/// A value that a JSON text can be parsed to.
public protocol JSONParsable {
    static func json(object members: [String: Self]) -> Self
    static func json(array elements: [Self]) -> Self
    static func json(string text: String) -> Self
    static func json(boolean value: Bool) -> Self
    /// - Parameter text: A number in JSON's grammar.
    /// - Returns: `nil` if the number is out of range.
    static func json(number text: String) -> Self?
    /// The value of `null`; `nil` if the parser rejects a text with `null`.
    static var jsonNull: Self? { get }
}

extension JSONValue: JSONParsable {
    public static func json(object members: [String: JSONValue]) -> JSONValue { .object(members) }
    public static func json(array elements: [JSONValue]) -> JSONValue { .array(elements) }
    public static func json(string text: String) -> JSONValue { .string(text) }
    public static func json(boolean value: Bool) -> JSONValue { .boolean(value) }
    public static var jsonNull: JSONValue? { .null }

    public static func json(number text: String) -> JSONValue? {
        guard let number = Double(text), number.isFinite else { return nil }
        return .number(number)
    }
}

extension JSONParsable {
    /// Parses a JSON text strictly by RFC 8259: UTF-8, one value, no repeated member name, no unpaired surrogate, no
    /// number beyond the range of `Double`.
    ///
    /// - Throws: `JSONError`. The size is checked before the first byte is read.
    public init(parsing bytes: [UInt8], limits: JSONLimits) throws(JSONError) {
        guard bytes.count <= limits.size else {
            throw JSONError(what: "it has more than \(limits.size) bytes", offset: nil)
        }
        var parser = JSONParser<Self>(bytes, limits)
        self = try parser.document()
    }
}

private struct JSONParser<Value: JSONParsable> {
    private let bytes: [UInt8]
    private let limits: JSONLimits
    private var position = 0
    private var values = 0

    init(_ bytes: [UInt8], _ limits: JSONLimits) { (self.bytes, self.limits) = (bytes, limits) }

    mutating func document() throws(JSONError) -> Value {
        if bytes.starts(with: [0xEF, 0xBB, 0xBF]) { throw flaw("a byte order mark") }
        let value = try value(depth: 0)
        guard next == nil else { throw flaw("something after the value") }
        return value
    }

    // MARK: Bytes

    private var next: UInt8? { position < bytes.count ? bytes[position] : nil }

    private func flaw(_ what: String) -> JSONError { JSONError(what: next == nil ? nil : what, offset: position) }

    private mutating func take(_ wanted: Unicode.Scalar...) -> Bool {
        guard let next, wanted.contains(Unicode.Scalar(next)) else { return false }
        position += 1
        return true
    }

    private mutating func expect(_ wanted: Unicode.Scalar) throws(JSONError) {
        guard take(wanted) else { throw flaw("no “\(wanted)”") }
    }

    private mutating func skipSpace() {
        while let next, next == 0x20 || next == 0x09 || next == 0x0A || next == 0x0D { position += 1 }
    }

    // MARK: Values

    private static var nothingAfterComma: String { "nothing after a comma" }

    /// Parses one value and the white space around it.
    private mutating func value(depth: Int) throws(JSONError) -> Value {
        skipSpace()
        values += 1
        guard values <= limits.values else { throw flaw("more than \(limits.values) values") }
        let value: Value
        if take("{") {
            value = .json(object: try members(depth: depth + 1))
        } else if take("[") {
            value = .json(array: try elements(depth: depth + 1))
        } else if take("\"") {
            value = .json(string: try restOfString())
        } else if next == UInt8(ascii: "-") || isDigit {
            value = try number()
        } else {
            value = try word()
        }
        skipSpace()
        return value
    }

    private mutating func members(depth: Int) throws(JSONError) -> [String: Value] {
        guard depth <= limits.depth else { throw flaw("too deep a nesting") }
        var members: [String: Value] = [:]
        skipSpace()
        if take("}") { return members }
        repeat {
            skipSpace()
            let start = position
            // A trailing comma is the most common mistake of people, so it gets its own message.
            let isAfterComma = !members.isEmpty && next == UInt8(ascii: "}")
            guard take("\"") else { throw flaw(isAfterComma ? Self.nothingAfterComma : "no key") }
            let name = try restOfString()
            skipSpace()
            try expect(":")
            let value = try value(depth: depth)
            // Two readers of the same text could use different values of a repeated key.
            guard members.updateValue(value, forKey: name) == nil else {
                throw JSONError(what: "the same key a second time", offset: start, repeatedKey: name)
            }
        } while take(",")
        if next == UInt8(ascii: "\"") { throw flaw("no comma before the next key") }
        try expect("}")
        return members
    }

    private mutating func elements(depth: Int) throws(JSONError) -> [Value] {
        guard depth <= limits.depth else { throw flaw("too deep a nesting") }
        var elements: [Value] = []
        skipSpace()
        if take("]") { return elements }
        repeat {
            skipSpace()
            if !elements.isEmpty, next == UInt8(ascii: "]") { throw flaw(Self.nothingAfterComma) }
            elements.append(try value(depth: depth))
        } while take(",")
        if let next, "\"{[-0123456789tfn".utf8.contains(next) { throw flaw("no comma before the next value") }
        try expect("]")
        return elements
    }

    // MARK: Strings

    private mutating func restOfString() throws(JSONError) -> String {
        let start = position
        var text: [UInt8] = []
        while !take("\"") {
            guard let next, next >= 0x20 else { throw flaw("a control character") }
            position += 1
            if next == UInt8(ascii: "\\") {
                text += String(try escape()).utf8
            } else {
                text.append(next)
            }
        }
        guard let string = String(validating: text, as: UTF8.self) else {
            throw JSONError(what: "a string that is not UTF-8", offset: start)
        }
        return string
    }

    private mutating func escape() throws(JSONError) -> Unicode.Scalar {
        let escapes: [(Unicode.Scalar, Unicode.Scalar)] = [
            ("\"", "\""), ("\\", "\\"), ("/", "/"), ("b", "\u{8}"), ("f", "\u{C}"), ("n", "\n"), ("r", "\r"),
            ("t", "\t"),
        ]
        for (letter, scalar) in escapes where take(letter) { return scalar }
        guard take("u") else { throw flaw("no such escape") }
        let unit = try hexadecimal()
        if let scalar = Unicode.Scalar(unit) { return scalar }
        // A surrogate pair: the high half must be followed by an escape with the low half.
        guard unit < 0xDC00, take("\\"), take("u") else { throw flaw("half of a surrogate pair") }
        let low = try hexadecimal()
        guard (0xDC00...0xDFFF).contains(low),
            let scalar = Unicode.Scalar(0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00))
        else { throw flaw("half of a surrogate pair") }
        return scalar
    }

    private mutating func hexadecimal() throws(JSONError) -> UInt32 {
        var unit: UInt32 = 0
        for _ in 0..<4 {
            guard let next, let digit = Character(Unicode.Scalar(next)).hexDigitValue else {
                throw flaw("no hexadecimal digit")
            }
            unit = unit << 4 | UInt32(digit)
            position += 1
        }
        return unit
    }

    // MARK: Numbers and words

    private var isDigit: Bool { next.map { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) } ?? false }

    private mutating func digits() throws(JSONError) {
        guard isDigit else { throw flaw("no digit") }
        while isDigit { position += 1 }
    }

    private mutating func number() throws(JSONError) -> Value {
        let start = position
        _ = take("-")
        if !take("0") { try digits() }
        if take(".") { try digits() }
        if take("e", "E") {
            _ = take("+", "-")
            try digits()
        }
        guard let number = Value.json(number: String(decoding: bytes[start..<position], as: UTF8.self)) else {
            throw JSONError(what: "a number that is too large", offset: start)
        }
        return number
    }

    private mutating func word() throws(JSONError) -> Value {
        let rest = bytes[position...]
        let words: [(String, Value?)] = [
            ("true", .json(boolean: true)), ("false", .json(boolean: false)), ("null", Value.jsonNull),
        ]
        for (word, value) in words where rest.starts(with: word.utf8) {
            guard let value else { throw flaw("a null, which is not possible here") }
            position += word.utf8.count
            return value
        }
        // A word that the end of the text cuts off counts as a text that ends too early.
        if words.contains(where: { $0.0.utf8.starts(with: rest) }) { position = bytes.count }
        throw flaw("invalid value")
    }
}

/// The reason why a text is not JSON, and the place of the flaw.
public enum JSONFlaw: Sendable {
    /// The same depth as `JSONDecoder`. The text is already in memory, and its size was checked when it was read.
    private static let limits = JSONLimits(size: .max, depth: 512, values: .max)

    /// The reason, with line and column, both counted from 1. `JSONDecoder` reports neither.
    public static func text(of json: [UInt8]) -> String { find(in: json)?.text ?? "it is no JSON object" }

    /// The problem with the text; `nil` if it is JSON without repeated keys.
    public static func find(in json: [UInt8]) -> (text: String, isRepeatedKey: Bool)? {
        do throws(JSONError) {
            _ = try JSONValue(parsing: json, limits: limits)
            return nil
        } catch {
            let isText = String(validating: json, as: UTF8.self) != nil
            guard isText, let offset = error.offset else { return ("it is not JSON: it is not UTF-8", false) }
            let place = place(offset, in: json)
            if let key = error.repeatedKey { return ("\(key.quoted) is there twice, again in \(place)", true) }
            return ("it is not JSON: \(error.what.map { "\($0) in" } ?? "it ends too early, in") \(place)", false)
        }
    }

    private static func place(_ offset: Int, in json: [UInt8]) -> String {
        let before = json.prefix(offset)
        let line = before.count { $0 == UInt8(ascii: "\n") } + 1
        let start = before.lastIndex(of: UInt8(ascii: "\n")).map { $0 + 1 } ?? before.startIndex
        return "line \(line), column \(String(decoding: before[start...], as: UTF8.self).count + 1)"
    }
}
