import DBusTransport
import Foundation
import Synchronization

/// A value as JSON or a property list has it. A Boolean is no number here, and a number no Boolean.
package enum ConfigurationValue: Sendable, Equatable {
    case boolean(Bool)
    case integer(Int)
    case number(Double)
    case string(String)
    case array([ConfigurationValue])
    case dictionary([String: ConfigurationValue])
    case null
    /// What no key takes: a property list's date or data, a number too large.
    case other
}

extension ConfigurationValue: Decodable {
    /// More levels than any configuration has.
    static let maximumDepth = 16
    /// More values than any configuration has. A binary property list may name one array a million times.
    private static let maximumCount = 4_000

    /// Counts the values of one content.
    final class Count: Sendable {
        static let key = CodingUserInfoKey(rawValue: "ConfigurationValue.Count")
        private let values = Locked(0)

        func add() -> Int {
            values.withLock { count in
                count += 1
                return count
            }
        }
    }

    package init(from decoder: any Decoder) throws {
        let count = Count.key.flatMap { decoder.userInfo[$0] as? Count }?.add() ?? 0
        guard count <= Self.maximumCount, decoder.codingPath.count <= Self.maximumDepth else {
            throw DecodingError.dataCorrupted(
                DecodingError.Context(codingPath: decoder.codingPath, debugDescription: "there is too much in it")
            )
        }
        // Asked in this order: an integer can be read as a floating-point number, too.
        if let value = try? decoder.singleValueContainer().decode(Bool.self) {
            self = .boolean(value)
        } else if let value = try? decoder.singleValueContainer().decode(Int.self) {
            self = .integer(value)
        } else if let value = try? decoder.singleValueContainer().decode(Double.self) {
            self = .number(value)
        } else if let value = try? decoder.singleValueContainer().decode(String.self) {
            self = .string(value)
        } else if let container = try? decoder.container(keyedBy: Name.self) {
            var members: [String: ConfigurationValue] = [:]
            for key in container.allKeys {
                members[key.stringValue] = try container.decode(ConfigurationValue.self, forKey: key)
            }
            self = .dictionary(members)
        } else if var container = try? decoder.unkeyedContainer() {
            var elements: [ConfigurationValue] = []
            while !container.isAtEnd { elements.append(try container.decode(ConfigurationValue.self)) }
            self = .array(elements)
        } else {
            self = try decoder.singleValueContainer().decodeNil() ? .null : .other
        }
    }

    private struct Name: CodingKey {
        let stringValue: String
        var intValue: Int? { nil }

        init(stringValue: String) { self.stringValue = stringValue }
        init?(intValue: Int) { nil }
    }
}

extension ConfigurationValue: Encodable {
    package func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        switch self {
        case .boolean(let value): try container.encode(value)
        case .integer(let value): try container.encode(value)
        case .number(let value): try container.encode(value)
        case .string(let value): try container.encode(value)
        case .array(let elements): try container.encode(elements)
        case .dictionary(let members): try container.encode(members)
        case .null, .other: try container.encodeNil()
        }
    }
}
