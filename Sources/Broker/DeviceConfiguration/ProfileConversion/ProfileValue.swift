import Basics
import FoundationEssentials
import Synchronization

/// A value of a property list. A Boolean does not count as a number, nor a number as a Boolean.
enum ProfileValue: Sendable, Equatable {
    case boolean(Bool)
    case integer(Int)
    case number(Double)
    case string(String)
    case array([ProfileValue])
    case dictionary([String: ProfileValue])
    /// A value that no key accepts: a date, data, or a number that is too large.
    case other
}

extension ProfileValue: Decodable {
    /// More levels than any configuration has.
    static let maximumDepth = 16
    /// More values than any configuration has. A binary property list may refer to one array a million times.
    private static let maximumCount = 4_000

    final class Count: Sendable {
        static let key = CodingUserInfoKey(rawValue: "ProfileValue.Count")
        private let values = Locked(0)

        func add() -> Int {
            values.withLock { count in
                count += 1
                return count
            }
        }
    }

    init(from decoder: any Decoder) throws {
        let count = Count.key.flatMap { decoder.userInfo[$0] as? Count }?.add() ?? 0
        guard count <= Self.maximumCount, decoder.codingPath.count <= Self.maximumDepth else {
            throw DecodingError.dataCorrupted(
                DecodingError.Context(codingPath: decoder.codingPath, debugDescription: "there is too much in it")
            )
        }
        // The order matters: an integer can also be read as a floating-point number.
        if let value = try? decoder.singleValueContainer().decode(Bool.self) {
            self = .boolean(value)
        } else if let value = try? decoder.singleValueContainer().decode(Int.self) {
            self = .integer(value)
        } else if let value = try? decoder.singleValueContainer().decode(Double.self) {
            self = .number(value)
        } else if let value = try? decoder.singleValueContainer().decode(String.self) {
            self = .string(value)
        } else if let container = try? decoder.container(keyedBy: Name.self) {
            var members: [String: ProfileValue] = [:]
            for key in container.allKeys {
                members[key.stringValue] = try container.decode(ProfileValue.self, forKey: key)
            }
            self = .dictionary(members)
        } else if var container = try? decoder.unkeyedContainer() {
            var elements: [ProfileValue] = []
            while !container.isAtEnd { elements.append(try container.decode(ProfileValue.self)) }
            self = .array(elements)
        } else {
            self = .other
        }
    }

    private struct Name: CodingKey {
        let stringValue: String
        var intValue: Int? { nil }

        init(stringValue: String) { self.stringValue = stringValue }
        init?(intValue: Int) { nil }
    }
}

extension ProfileValue: Encodable {
    func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        switch self {
        case .boolean(let value): try container.encode(value)
        case .integer(let value): try container.encode(value)
        case .number(let value): try container.encode(value)
        case .string(let value): try container.encode(value)
        case .array(let elements): try container.encode(elements)
        case .dictionary(let members): try container.encode(members)
        case .other: try container.encodeNil()
        }
    }
}

extension ProfileValue {
    var shortText: String {
        switch self {
        case .boolean(let value): "\(value)"
        case .integer(let value): "\(value)"
        case .number(let value): "\(value)"
        case .string(let value): "“\(value)”"
        case .array, .dictionary, .other: "something else"
        }
    }
}

/// Measures the nesting of an XML property list before it is parsed. The parser recurses with each level, and deep
/// nesting would exhaust the stack.
enum XMLNesting {
    static func isWithin(_ maximumDepth: Int, _ content: Data) -> Bool {
        let bytes = [UInt8](content)
        var depth = 0
        var position = 0
        while let start = bytes[position...].firstIndex(of: UInt8(ascii: "<")) {
            let rest = bytes[start...]
            // Comments, CDATA and processing instructions contain no elements.
            if let end = skipped.first(where: { rest.starts(with: $0.start) })?.end {
                guard let next = after(end, in: bytes, from: start) else { return true }
                position = next
                continue
            }
            if opening.contains(where: { rest.starts(with: $0) }) {
                depth += 1
                guard depth <= maximumDepth else { return false }
                // <array/> opens and closes one level.
                if let end = rest.firstIndex(of: UInt8(ascii: ">")), bytes[end - 1] == UInt8(ascii: "/") { depth -= 1 }
            } else if closing.contains(where: { rest.starts(with: $0) }) {
                depth = max(0, depth - 1)
            }
            position = start + 1
        }
        return true
    }

    private static let skipped = [("<!--", "-->"), ("<![CDATA[", "]]>"), ("<?", "?>")]
        .map { (start: Array($0.0.utf8), end: Array($0.1.utf8)) }
    private static let opening = ["<dict", "<array"].map { Array($0.utf8) }
    private static let closing = ["</dict", "</array"].map { Array($0.utf8) }

    private static func after(_ end: [UInt8], in bytes: [UInt8], from start: Int) -> Int? {
        var position = start
        while let next = bytes[position...].firstIndex(of: end[0]) {
            if bytes[next...].starts(with: end) { return next + end.count }
            position = next + 1
        }
        return nil
    }
}
