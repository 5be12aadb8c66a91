import Basics
import FoundationEssentials
import Synchronization

/// A value of a property list as JSON. A Boolean does not count as a number, nor a number as a Boolean. Values that no
/// key accepts are `null`: a date, data, or a number that is too large.
struct ProfileValue: Decodable {
    /// More levels than any configuration has.
    private static let maximumDepth = 16
    /// More values than any configuration has. A binary property list may refer to one array a million times.
    private static let maximumCount = 4_000
    private static let countKey = CodingUserInfoKey(rawValue: "ProfileValue.Count")

    private final class Count: Sendable { let values = Locked(0) }

    let json: JSONValue

    /// The outermost dictionary of an untrusted property list.
    static func members(of content: Data, file: String) throws(ManagedConfigurationError) -> [String: JSONValue] {
        func unusable(_ message: String) -> ManagedConfigurationError {
            let remedy = "export the profile again, or check it with: plutil -lint \(file)"
            return ManagedConfigurationError(.profile, file, "not a property list: \(message)", remedy: remedy)
        }
        switch ProfileForm(content) {
        case .signature(let encoding):
            throw .init(
                .profile,
                file,
                "the profile is inside a signature, which is not taken off here",
                remedy: "unwrap it with: openssl smime -verify -noverify -inform \(encoding) -in \(file) "
                    + "-out unsigned.mobileconfig"
            )
        case .binary where content.starts(with: "bplist".utf8): break
        case .xml:
            guard XMLNesting.isWithin(maximumDepth, content) else { throw unusable("it is nested too deeply") }
        // The parsers of other forms recurse with each level, and deep nesting would exhaust the stack.
        case .binary, nil: throw unusable("it begins like neither XML nor a binary one")
        }
        let decoder = PropertyListDecoder()
        if let key = countKey { decoder.userInfo[key] = Count() }
        let value: JSONValue
        do {
            value = try decoder.decode(ProfileValue.self, from: content).json
        } catch {
            guard case DecodingError.dataCorrupted(let context) = error else { throw unusable("\(error)") }
            let place = (context.underlyingError as? CocoaError)?.userInfo["NSDebugDescription"] as? String
            throw unusable(place ?? context.debugDescription)
        }
        guard let members = value.object else { throw unusable("its outermost element is not a <dict>") }
        return members
    }

    init(from decoder: any Decoder) throws {
        let counted = Self.countKey.flatMap { decoder.userInfo[$0] as? Count }
        let count = counted?.values.withLock { values in
            values += 1
            return values
        }
        guard count ?? 0 <= Self.maximumCount, decoder.codingPath.count <= Self.maximumDepth else {
            throw DecodingError.dataCorrupted(
                DecodingError.Context(codingPath: decoder.codingPath, debugDescription: "there is too much in it")
            )
        }
        if let value = try? decoder.singleValueContainer().decode(Bool.self) {
            json = .boolean(value)
        } else if let value = try? decoder.singleValueContainer().decode(Double.self) {
            json = .number(value)
        } else if let value = try? decoder.singleValueContainer().decode(String.self) {
            json = .string(value)
        } else if let container = try? decoder.container(keyedBy: AnyKey.self) {
            var members: [String: JSONValue] = [:]
            for key in container.allKeys {
                members[key.stringValue] = try container.decode(ProfileValue.self, forKey: key).json
            }
            json = .object(members)
        } else if var container = try? decoder.unkeyedContainer() {
            var elements: [JSONValue] = []
            while !container.isAtEnd { elements.append(try container.decode(ProfileValue.self).json) }
            json = .array(elements)
        } else {
            json = .null
        }
    }
}

/// The form of a profile or property list, by its first bytes.
enum ProfileForm {
    case xml, binary
    /// A signature (CMS) around a profile, by OpenSSL's name for its encoding.
    case signature(encoding: String)

    /// Returns `nil` for anything else.
    init?(_ content: Data) {
        var bytes = content[...]
        if bytes.starts(with: [0xEF, 0xBB, 0xBF]) { bytes = bytes.dropFirst(3) }
        bytes = bytes.drop { [0x20, 0x09, 0x0A, 0x0D].contains($0) }
        if bytes.starts(with: "<".utf8) {
            self = .xml
        } else if bytes.starts(with: "bplist".utf8) {
            self = .binary
        } else if bytes.starts(with: "-----BEGIN ".utf8) {
            self = .signature(encoding: "pem")
        } else if bytes.first == 0x30, let length = bytes.dropFirst().first, length >= 0x80 {
            // A DER sequence whose length takes more than one byte, or is indefinite.
            self = .signature(encoding: "der")
        } else {
            return nil
        }
    }
}

/// Measures the nesting of an XML property list before it is parsed. The parser recurses with each level, and deep
/// nesting would exhaust the stack.
private enum XMLNesting {
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
