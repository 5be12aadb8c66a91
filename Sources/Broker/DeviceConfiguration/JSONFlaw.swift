package import FoundationEssentials

/// Why a text is not JSON, and where.
package enum JSONFlaw {
    /// What keeps it from being JSON, with line and column, both counted from 1. `JSONDecoder` says neither.
    package static func text(of json: Data) -> String {
        var scanner = JSONScanner(json)
        do throws(JSONScanner.Flaw) {
            try scanner.scan()
            let isText = String(validating: json, as: UTF8.self) != nil
            return isText ? "it is no JSON object" : "it is not JSON: it is not UTF-8"
        } catch {
            let place = place(scanner.position, in: json)
            return "it is not JSON: \(error.what.map { "\($0) in" } ?? "it ends too early, in") \(place)"
        }
    }

    private static func place(_ offset: Int, in json: Data) -> String {
        let before = json.prefix(offset)
        let line = before.count { $0 == UInt8(ascii: "\n") } + 1
        let start = before.lastIndex(of: UInt8(ascii: "\n")).map { $0 + 1 } ?? before.startIndex
        return "line \(line), column \(String(decoding: before[start...], as: UTF8.self).count + 1)"
    }
}

/// Goes through a text by the grammar of JSON (RFC 8259), as far as it follows it.
private struct JSONScanner {
    /// Why it cannot go on; `nil` at the end of the text.
    struct Flaw: Error {
        let what: String?
    }

    /// As deep as `JSONDecoder` goes.
    private static let maximumDepth = 512

    private let bytes: [UInt8]
    private(set) var position = 0

    init(_ json: Data) { bytes = [UInt8](json) }

    mutating func scan() throws(Flaw) {
        try value(depth: 0)
        guard next == nil else { throw flaw("something after the value") }
    }

    // MARK: Bytes

    private var next: UInt8? { position < bytes.count ? bytes[position] : nil }

    private func flaw(_ what: String) -> Flaw { Flaw(what: next == nil ? nil : what) }

    private mutating func take(_ wanted: Unicode.Scalar...) -> Bool {
        guard let next, wanted.contains(Unicode.Scalar(next)) else { return false }
        position += 1
        return true
    }

    private mutating func expect(_ wanted: Unicode.Scalar) throws(Flaw) {
        guard take(wanted) else { throw flaw("no “\(wanted)”") }
    }

    private mutating func skipSpace() { while take(" ", "\t", "\n", "\r") {} }

    // MARK: Values

    /// One value, and the space around it.
    private mutating func value(depth: Int) throws(Flaw) {
        guard depth <= Self.maximumDepth else { throw flaw("too deep a nesting") }
        skipSpace()
        if take("{") {
            try elements(until: "}", depth: depth, areMembers: true)
        } else if take("[") {
            try elements(until: "]", depth: depth, areMembers: false)
        } else if take("\"") {
            try restOfString()
        } else if next == UInt8(ascii: "-") || isDigit {
            try number()
        } else {
            try word()
        }
        skipSpace()
    }

    private mutating func elements(until end: Unicode.Scalar, depth: Int, areMembers: Bool) throws(Flaw) {
        skipSpace()
        if take(end) { return }
        repeat {
            if areMembers {
                skipSpace()
                guard take("\"") else { throw flaw("no key") }
                try restOfString()
                skipSpace()
                try expect(":")
            }
            try value(depth: depth + 1)
        } while take(",")
        try expect(end)
    }

    private mutating func restOfString() throws(Flaw) {
        while !take("\"") {
            guard let next, next >= 0x20 else { throw flaw("a control character") }
            position += 1
            guard next == UInt8(ascii: "\\") else { continue }
            if take("u") {
                for _ in 0..<4 {
                    guard let digit = self.next, Unicode.Scalar(digit).properties.isASCIIHexDigit else {
                        throw flaw("no hexadecimal digit")
                    }
                    position += 1
                }
            } else if !take("\"", "\\", "/", "b", "f", "n", "r", "t") {
                throw flaw("no such escape")
            }
        }
    }

    private var isDigit: Bool { next.map { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) } ?? false }

    private mutating func digits() throws(Flaw) {
        guard isDigit else { throw flaw("no digit") }
        while isDigit { position += 1 }
    }

    private mutating func number() throws(Flaw) {
        _ = take("-")
        if !take("0") { try digits() }
        if take(".") { try digits() }
        guard take("e", "E") else { return }
        _ = take("+", "-")
        try digits()
    }

    private mutating func word() throws(Flaw) {
        let rest = bytes[position...]
        guard let word = ["true", "false", "null"].first(where: { rest.starts(with: $0.utf8) }) else {
            // One that the end of the text cuts off ends too early.
            let isCut = ["true", "false", "null"].contains { $0.utf8.starts(with: rest) }
            if isCut { position = bytes.count }
            throw flaw("invalid value")
        }
        position += word.utf8.count
    }
}
