import DBusTransport
import Foundation
import Synchronization

/// Parses what a file holds, whatever its form.
struct ConfigurationContent {
    let format: ConfigurationFormat
    /// The outermost dictionary.
    let members: [String: ConfigurationValue]

    /// - Throws: `ManagedConfigurationError`: `signed`, `invalidJSON`, `invalidPropertyList`.
    init(_ content: Data, file: String) throws(ManagedConfigurationError) {
        switch ConfigurationFormat.appearance(of: content) {
        case .signed(let encoding):
            throw .signed(file: file, encoding: encoding)
        case .json:
            try self.init(json: content, file: file)
        case .xmlPropertyList:
            guard XMLNesting.isWithin(ConfigurationValue.maximumDepth, content) else {
                throw .unusable(.propertyList, file: file, message: "it is nested too deeply")
            }
            fallthrough
        case .binaryPropertyList:
            let decoder = PropertyListDecoder()
            if let key = ConfigurationValue.Count.key { decoder.userInfo[key] = ConfigurationValue.Count() }
            try self.init(.propertyList, file: file) { try decoder.decode(ConfigurationValue.self, from: content) }
        }
    }

    /// - Throws: `ManagedConfigurationError`: `invalidJSON`.
    init(json content: Data, file: String) throws(ManagedConfigurationError) {
        let decoder = JSONDecoder()
        if let key = ConfigurationValue.Count.key { decoder.userInfo[key] = ConfigurationValue.Count() }
        try self.init(.json, file: file) { try decoder.decode(ConfigurationValue.self, from: content) }
    }

    private init(
        _ format: ConfigurationFormat,
        file: String,
        decode: () throws -> ConfigurationValue
    ) throws(ManagedConfigurationError) {
        self.format = format
        let value: ConfigurationValue
        do {
            value = try decode()
        } catch {
            throw .unusable(format, file: file, message: Self.message(of: error))
        }
        guard case .dictionary(let members) = value else {
            let outermost = format == .json ? "it is JSON, but not an object" : "its outermost element is not a <dict>"
            throw .unusable(format, file: file, message: outermost)
        }
        self.members = members
    }

    private static func message(of error: any Error) -> String {
        guard case DecodingError.dataCorrupted(let context) = error else { return "\(error)" }
        let place = (context.underlyingError as NSError?)?.userInfo[NSDebugDescriptionErrorKey] as? String
        return place ?? context.debugDescription
    }
}

extension ManagedConfigurationError {
    fileprivate static func unusable(
        _ format: ConfigurationFormat,
        file: String,
        message: String
    ) -> ManagedConfigurationError {
        ManagedConfigurationError(
            format == .json ? .invalidJSON : .invalidPropertyList,
            file: file,
            message: format == .json ? message : "not a property list: \(message)",
            remedy: format == .json
                ? "write a JSON object such as {\"sharedDeviceMode\": true}, or a property list"
                : "export the profile anew, or check it with: plutil -lint \(file)"
        )
    }

    fileprivate static func signed(file: String, encoding: String) -> ManagedConfigurationError {
        ManagedConfigurationError(
            .signed,
            file: file,
            message: "the profile is inside a signature, which is not taken off here",
            remedy: "unwrap it with: openssl smime -verify -noverify -inform \(encoding) -in \(file) "
                + "-out unsigned.mobileconfig"
        )
    }
}

/// The forms that a configuration may have. A file's content tells which, never its name.
package enum ConfigurationFormat: String, Sendable {
    case json
    case propertyList

    /// What a person calls it.
    package var name: String {
        switch self {
        case .json: "JSON"
        case .propertyList: "property list"
        }
    }

    /// What a content looks like before it is parsed.
    enum Appearance: Equatable {
        case json
        case xmlPropertyList
        case binaryPropertyList
        /// A signature (CMS) around a profile. `encoding` is what OpenSSL calls its form.
        case signed(encoding: String)
    }

    static func appearance(of content: Data) -> Appearance {
        var bytes = content[...]
        if bytes.starts(with: [0xEF, 0xBB, 0xBF]) { bytes = bytes.dropFirst(3) }
        bytes = bytes.drop { [0x20, 0x09, 0x0A, 0x0D].contains($0) }
        if bytes.starts(with: Data("bplist".utf8)) { return .binaryPropertyList }
        if bytes.first == UInt8(ascii: "<") { return .xmlPropertyList }
        if bytes.starts(with: Data("-----BEGIN ".utf8)) { return .signed(encoding: "pem") }
        // A DER sequence whose length takes more than one byte, or is indefinite. In JSON a 0 begins no object.
        if bytes.first == 0x30, let length = bytes.dropFirst().first, length >= 0x80 { return .signed(encoding: "der") }
        return .json
    }

    /// How each type of value is written in this form, for remedies.
    func writing(_ type: ValueType) -> String {
        switch (self, type) {
        case (.json, .boolean): "true or false, without quotation marks"
        case (.propertyList, .boolean): "<true/> or <false/>"
        case (.json, .flag): "0 or 1, without quotation marks"
        case (.propertyList, .flag): "<integer>0</integer> or <integer>1</integer>"
        case (.json, .string): "a string"
        case (.propertyList, .string): "<string>…</string>"
        case (.json, .strings): "an array of strings"
        case (.propertyList, .strings): "<array> of <string>…</string>"
        case (.json, .number): "a number, without quotation marks"
        case (.propertyList, .number): "<integer>…</integer> or <real>…</real>"
        case (.json, .dictionary): "an object, { … }"
        case (.propertyList, .dictionary): "<dict>…</dict>"
        }
    }

    enum ValueType {
        case boolean
        case flag
        case string
        case strings
        case number
        case dictionary
    }
}

/// Measures how deep an XML property list is nested before it is parsed: the parser recurses with each level, and deep
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
                // <array/> is one level, and over at once.
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

/// A value of JSON or of a property list. A Boolean does not count as a number, nor a number as a Boolean.
package enum ConfigurationValue: Sendable, Equatable {
    case boolean(Bool)
    case integer(Int)
    case number(Double)
    case string(String)
    case array([ConfigurationValue])
    case dictionary([String: ConfigurationValue])
    case null
    /// A value that no key takes: a date or data of a property list, or a number that is too large.
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

extension ConfigurationValue {
    /// The value as JSON.
    var json: String {
        switch self {
        case .boolean(let value): return "\(value)"
        case .integer(let value): return "\(value)"
        case .number(let value): return "\(value)"
        case .string(let value):
            // A string of its own is JSON, and its encoding does not fail.
            return (try? JSONEncoder().encode(value)).map { String(decoding: $0, as: UTF8.self) } ?? "\"\""
        case .array(let elements): return "[\(elements.map(\.json).joined(separator: ", "))]"
        case .dictionary, .null, .other: return "null"
        }
    }
}
