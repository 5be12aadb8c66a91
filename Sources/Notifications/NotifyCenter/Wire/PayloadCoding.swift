import DBus

/// The reason why a message is not a notification.
enum FormError: Error {
    /// It is over ``NotificationSize/maximum``.
    case tooLarge
    /// Its userInfo is nested over ``PayloadCoding/maximumDepth``.
    case tooDeep
    /// Its userInfo holds a date that is NaN or infinite. Foundation's `Date` ends a process that prints such a date.
    case noDate
    /// It does not have the form that ``WireNotification`` and ``PayloadCoding`` describe.
    case malformed
}

/// The size of a notification. Above ``maximum`` the poster gets an error, and a receiver ignores the notification.
/// Poster and receiver count alike, so that everything that can be posted is also received. An observer's
/// ``Buffering`` counts in the same way.
///
/// The notification itself, each key of its userInfo and each value of it count 64 bytes; dictionaries and arrays are
/// values too. The UTF-8 of all texts and keys and the bytes of all data are added. A receiver counts before it copies,
/// so the size limits the memory that an untrusted sender can claim.
struct NotificationSize {
    /// The largest notification. Larger data belongs in a file; post its name.
    static let maximum = 1 << 20
    private static let perPart = 64

    private(set) var bytes = NotificationSize.perPart

    /// Counts one value or key, with the bytes of its text or data.
    mutating func addPart(_ length: Int = 0) throws(FormError) { try add(Self.perPart + length) }

    /// Counts the bytes of a name or an object.
    mutating func add(_ length: Int) throws(FormError) {
        bytes += length
        guard bytes <= Self.maximum else { throw .tooLarge }
    }
}

/// The encoding of property-list values as D-Bus types that every tool can show and make, so that `busctl` and `gdbus`
/// can post and watch them. A value without a D-Bus type is encoded as a struct or array that encodes no other value:
///
/// | value | D-Bus |
/// |---|---|
/// | text with U+0000 | `(ay)`, its UTF-8 |
/// | date | `(d)`, seconds since 2001-01-01 UTC |
/// | array | `av` |
/// | dictionary | `a{sv}`; with U+0000 in a key, `a(ayv)` |
enum PayloadCoding {
    /// The nesting limit, with the userInfo itself counted. D-Bus allows 64 levels, and a dictionary takes three of
    /// them. This limit is lower, and the poster gets a helpful error.
    static let maximumDepth = 20

    // MARK: Encoding

    /// Encodes a userInfo. Throws ``FormError/tooLarge``, ``FormError/tooDeep`` and ``FormError/noDate``.
    ///
    /// - Parameter size: the size of the notification so far; the size of the userInfo is added.
    static func encode(
        _ userInfo: UserInfo,
        depth: Int = 0,
        size: inout NotificationSize
    ) throws(FormError) -> DBusValue {
        try size.addPart()
        var entries: [(String, DBusValue)] = []
        for (key, value) in userInfo.sorted(by: { $0.key < $1.key }) {
            try size.addPart(key.utf8.count)
            entries.append((key, .variant(try encode(value, depth: depth + 1, &size))))
        }
        guard entries.contains(where: { $0.0.utf8.contains(0) }) else {
            return .dictionary(entries.map { DBusValue.DictionaryEntry(.string($0.0), $0.1) }, key: "s", value: "v")
        }
        return .array(entries.map { .structure([.bytes(Array($0.0.utf8)), $0.1]) }, of: "(ayv)")
    }

    private static func encode(
        _ value: PropertyListValue,
        depth: Int,
        _ size: inout NotificationSize
    ) throws(FormError) -> DBusValue {
        switch value {
        case .array, .dictionary: guard depth < maximumDepth else { throw .tooDeep }
        default: break
        }
        if case .dictionary(let dictionary) = value { return try encode(dictionary, depth: depth, size: &size) }
        try size.addPart(value.length)
        switch value {
        case .string(let text): return text.utf8.contains(0) ? .structure([.bytes(Array(text.utf8))]) : .string(text)
        case .integer(let number): return .int64(number)
        case .unsigned(let number): return .uint64(number)
        case .double(let number): return .double(number)
        case .bool(let flag): return .boolean(flag)
        case .date(let date):
            guard date.isFinite else { throw .noDate }
            return .structure([.double(date.secondsSinceReferenceDate)])
        case .data(let bytes): return .bytes(bytes)
        case .array(let elements):
            var encoded: [DBusValue] = []
            for element in elements { encoded.append(.variant(try encode(element, depth: depth + 1, &size))) }
            return .array(encoded, of: "v")
        case .dictionary(let dictionary): return try encode(dictionary, depth: depth, size: &size)
        }
    }

    // MARK: Decoding

    /// Decodes the dictionary at `reader`. Other tools choose other D-Bus types, so this accepts more types than
    /// ``encode(_:size:)`` makes. Throws ``FormError/malformed``, ``FormError/noDate`` and ``FormError/tooLarge``.
    ///
    /// - Parameter size: the size of the notification so far; the size of the userInfo is added. Nothing is copied
    ///   before the whole size has been checked.
    static func decodeUserInfo(_ reader: DBusReader, size: inout NotificationSize) throws(FormError) -> UserInfo {
        try measure(reader, &size)
        guard case .dictionary(let userInfo) = try decode(reader) else { throw .malformed }
        return userInfo
    }

    private static func measure(_ reader: DBusReader, _ size: inout NotificationSize) throws(FormError) {
        switch reader.kind {
        case .string, .objectPath, .signature: try size.addPart(reader.text?.count ?? 0)
        case .bytes: try size.addPart(reader.bytes?.count ?? 0)
        case .variant: try measure(reader.inner, &size)
        // A struct stands for the single value in it.
        case .structure: try measureAll(reader.inner, &size)
        case .array where !reader.inner.has(signature: "(ayv)"):
            try size.addPart()
            try measureAll(reader.inner, &size)
        case .array, .dictionary:
            try size.addPart()
            var pairs = reader.inner
            while pairs.kind != .end {
                var pair = pairs.inner
                try size.addPart((pair.text ?? pair.bytes)?.count ?? 0)
                pair.next()
                try measure(pair, &size)
                pairs.next()
            }
        default: try size.addPart()
        }
    }

    private static func measureAll(_ values: DBusReader, _ size: inout NotificationSize) throws(FormError) {
        var values = values
        while values.kind != .end {
            try measure(values, &size)
            values.next()
        }
    }

    private static func decode(_ reader: DBusReader) throws(FormError) -> PropertyListValue {
        switch reader.kind {
        case .string, .objectPath, .signature: return .string(try text(reader.text))
        case .bytes: return .data(Array(reader.bytes ?? UnsafeBufferPointer(start: nil, count: 0)))
        case .variant: return try decode(reader.inner)
        case .structure: return try decodeStructure(reader.inner)
        case .array:
            let elements = reader.inner
            return elements.has(signature: "(ayv)") ? try decodePairs(elements) : try decodeElements(elements)
        case .dictionary: return try decodePairs(reader.inner)
        default:
            switch reader.number {
            case .signed(let number): return .integer(number)
            case .unsigned(let number): return Int64(exactly: number).map { .integer($0) } ?? .unsigned(number)
            case .double(let number): return .double(number)
            case .boolean(let flag): return .bool(flag)
            case nil: throw .malformed
            }
        }
    }

    private static func decodeElements(_ elements: DBusReader) throws(FormError) -> PropertyListValue {
        var (elements, values) = (elements, [PropertyListValue]())
        while elements.kind != .end {
            values.append(try decode(elements))
            elements.next()
        }
        return .array(values)
    }

    /// Decodes a text with U+0000, or a date.
    private static func decodeStructure(_ member: DBusReader) throws(FormError) -> PropertyListValue {
        var end = member
        end.next()
        guard end.kind == .end else { throw .malformed }
        if member.kind == .bytes { return .string(try text(member.bytes)) }
        guard case .double(let seconds)? = member.number else { throw .malformed }
        let date = PropertyListDate(secondsSinceReferenceDate: seconds)
        guard date.isFinite else { throw .noDate }
        return .date(date)
    }

    /// Decodes the pairs of a dictionary, or the structs that stand for them. If a key occurs twice, the last value
    /// counts.
    private static func decodePairs(_ pairs: DBusReader) throws(FormError) -> PropertyListValue {
        var (pairs, dictionary) = (pairs, UserInfo())
        while pairs.kind != .end {
            var pair = pairs.inner
            guard pair.kind == .string || pair.kind == .bytes else { throw .malformed }
            let key = try text(pair.text ?? pair.bytes)
            pair.next()
            dictionary[key] = try decode(pair)
            pairs.next()
        }
        return .dictionary(dictionary)
    }

    private static func text(_ utf8: UnsafeBufferPointer<UInt8>?) throws(FormError) -> String {
        guard let utf8, let text = String(validating: utf8, as: UTF8.self) else { throw .malformed }
        return text
    }
}

extension PropertyListValue {
    /// The number of bytes of a text or of data; 0 for other types.
    fileprivate var length: Int {
        switch self {
        case .string(let text): text.utf8.count
        case .data(let bytes): bytes.count
        default: 0
        }
    }
}
