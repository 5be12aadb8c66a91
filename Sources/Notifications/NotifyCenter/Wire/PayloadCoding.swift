import DBusTransport

/// How property-list values travel: as the D-Bus types that any tool shows and makes, so that `busctl` and `gdbus` can post
/// and watch them. What D-Bus has no type for is a struct or array that nothing else becomes:
///
/// | value | D-Bus |
/// |---|---|
/// | text with U+0000 | `(ay)`, its UTF-8 |
/// | date | `(d)`, seconds since 2001-01-01 UTC |
/// | array | `av` |
/// | dictionary | `a{sv}`; with U+0000 in a key, `a(ayv)` |
enum PayloadCoding {
    /// Containers in each other, the userInfo itself included. D-Bus takes 64 levels, of which a dictionary needs three; this bound
    /// comes before that, with an error that says what to do.
    private static let maximumDepth = 20

    // MARK: Encoding

    static func encode(_ userInfo: UserInfo) throws(DBusError) -> DBusValue { try encode(userInfo, depth: 0) }

    private static func encode(_ dictionary: UserInfo, depth: Int) throws(DBusError) -> DBusValue {
        var entries: [(String, DBusValue)] = []
        for key in dictionary.keys.sorted() {
            guard let value = dictionary[key] else { continue }
            entries.append((key, .variant(try encode(value, depth: depth + 1))))
        }
        guard entries.contains(where: { $0.0.utf8.contains(0) }) else {
            return .dictionary(entries.map { DBusValue.DictionaryEntry(.string($0.0), $0.1) }, key: "s", value: "v")
        }
        return .array(entries.map { .structure([.bytes(Array($0.0.utf8)), $0.1]) }, of: "(ayv)")
    }

    private static func encode(_ value: PropertyListValue, depth: Int) throws(DBusError) -> DBusValue {
        guard depth <= maximumDepth else {
            throw DBusError(
                .invalidArgument,
                message: "the userInfo is nested more than \(maximumDepth) arrays and dictionaries deep",
                attempted: "post a notification",
                remedy: "flatten it"
            )
        }
        switch value {
        case .string(let text): return text.utf8.contains(0) ? .structure([.bytes(Array(text.utf8))]) : .string(text)
        case .integer(let number): return .int64(number)
        case .unsigned(let number): return .uint64(number)
        case .double(let number): return .double(number)
        case .bool(let flag): return .boolean(flag)
        case .date(let date): return .structure([.double(date.secondsSinceReferenceDate)])
        case .data(let bytes): return .bytes(bytes)
        case .array(let elements):
            var encoded: [DBusValue] = []
            for element in elements { encoded.append(.variant(try encode(element, depth: depth + 1))) }
            return .array(encoded, of: "v")
        case .dictionary(let dictionary):
            return try encode(dictionary, depth: depth)
        }
    }

    // MARK: Decoding

    /// The dictionary that a message carries; `nil` for what none of ours sends.
    static func decodeUserInfo(_ value: DBusValue) -> UserInfo? {
        guard case .dictionary(let dictionary) = decode(value) else { return nil }
        return dictionary
    }

    /// Takes more than ``encode(_:)`` makes, because other tools choose among D-Bus's types by themselves.
    private static func decode(_ value: DBusValue) -> PropertyListValue? {
        switch value {
        case .string(let text), .objectPath(let text), .signature(let text): .string(text)
        case .byte(let number): .integer(Int64(number))
        case .int16(let number): .integer(Int64(number))
        case .uint16(let number): .integer(Int64(number))
        case .int32(let number): .integer(Int64(number))
        case .uint32(let number): .integer(Int64(number))
        case .int64(let number): .integer(number)
        case .uint64(let number): Int64(exactly: number).map(PropertyListValue.integer) ?? .unsigned(number)
        case .double(let number): .double(number)
        case .boolean(let flag): .bool(flag)
        case .bytes(let bytes): .data(bytes)
        case .variant(let inner): decode(inner)
        case .structure(let members): decodeStructure(members)
        case .array(let elements, "(ayv)"): decodePairs(elements)
        case .array(let elements, _): all(elements.map(decode)).map(PropertyListValue.array)
        case .dictionary(let entries, "s", _): decodeEntries(entries)
        case .dictionary: nil
        }
    }

    private static func decodeStructure(_ members: [DBusValue]) -> PropertyListValue? {
        guard members.count == 1, let member = members.first else { return nil }
        switch member {
        case .bytes(let utf8): return String(validating: utf8, as: UTF8.self).map(PropertyListValue.string)
        case .double(let seconds): return .date(PropertyListDate(secondsSinceReferenceDate: seconds))
        default: return nil
        }
    }

    private static func decodePairs(_ elements: [DBusValue]) -> PropertyListValue? {
        var dictionary: UserInfo = [:]
        for element in elements {
            guard case .structure(let members) = element, members.count == 2,
                let key = members[0].bytesValue.flatMap({ String(validating: $0, as: UTF8.self) }),
                let value = decode(members[1])
            else { return nil }
            dictionary[key] = value
        }
        return .dictionary(dictionary)
    }

    private static func decodeEntries(_ entries: [DBusValue.DictionaryEntry]) -> PropertyListValue? {
        var dictionary: UserInfo = [:]
        for entry in entries {
            guard let key = entry.key.stringValue, let value = decode(entry.value) else { return nil }
            dictionary[key] = value
        }
        return .dictionary(dictionary)
    }

    private static func all(_ values: [PropertyListValue?]) -> [PropertyListValue]? {
        let present = values.compactMap(\.self)
        return present.count == values.count ? present : nil
    }
}
