import CDBus

/// The limits of D-Bus on values. Values are checked before the first is marshalled: libdbus responds to a violation
/// with a warning on standard error or ends the process, and a bus closes the connection.
enum DBusValueLimits {
    /// The largest body that this library sends: half of a system bus's default limit, which is the lowest of the
    /// standard configurations.
    static let bodyBytes = 16 * 1024 * 1024
    /// The depth of nested containers, variants included (D-Bus specification, "Valid Signatures": 32 arrays and 32
    /// structs).
    static let depth = 64

    /// Throws unless D-Bus can carry `values` as one body.
    static func check(_ values: [DBusValue], attempted: @autoclosure () -> String) throws(DBusError) {
        // Almost every message holds only a few strings and numbers, which make a valid signature.
        if values.count <= 16, values.allSatisfy(\.isSmallBasic) { return }
        var check = Check(attempted: attempted())
        for value in values { try check.value(value, depth: 0) }
        if values.count <= 16, values.allSatisfy(\.hasPlainSignature) { return }
        let signature = values.map(\.signature).joined()
        guard isValid(signature: signature) else { throw check.invalid("“\(signature)” is no valid signature") }
    }

    private static func isValid(signature: String) -> Bool {
        !signature.containsNUL && onLibdbus { dbus_signature_validate(signature, nil) != 0 }
    }

    private struct Check {
        let attempted: String
        var bytes = 0

        func invalid(_ message: String) -> DBusError {
            DBusError(.invalidArgument, message: message, attempted: attempted)
        }

        mutating func add(_ count: Int) throws(DBusError) {
            bytes += count
            guard bytes <= bodyBytes else {
                throw DBusError(
                    .tooLarge,
                    message: "the message is over \(bodyBytes) bytes, which is more than some buses accept",
                    attempted: attempted,
                    remedy: "put the data in a file and send its name"
                )
            }
        }

        mutating func text(_ text: String) throws(DBusError) {
            guard !text.containsNUL else { throw invalid("a D-Bus string cannot hold U+0000") }
            try add(text.utf8.count + 9)
        }

        mutating func value(_ value: DBusValue, depth: Int) throws(DBusError) {
            guard depth < DBusValueLimits.depth else {
                throw invalid("containers are nested deeper than the \(DBusValueLimits.depth) levels of D-Bus")
            }
            switch value {
            case .byte, .boolean, .int16, .uint16, .int32, .uint32, .int64, .uint64, .double:
                try add(8)
            case .string(let string):
                try text(string)
            case .objectPath(let path):
                try text(path)
                guard dbus_validate_path(path, nil) != 0 else { throw invalid("“\(path)” is no object path") }
            case .signature(let signature):
                guard isValid(signature: signature) else { throw invalid("“\(signature)” is no signature") }
                try add(signature.utf8.count + 2)
            case .bytes(let bytes):
                try add(bytes.count + 8)
            case .array(let elements, let type):
                try add(8)
                for element in elements {
                    try same(element, as: type)
                    try self.value(element, depth: depth + 1)
                }
            case .structure(let members):
                guard !members.isEmpty else { throw invalid("D-Bus has no empty struct") }
                try add(8)
                for member in members { try self.value(member, depth: depth + 1) }
            case .dictionary(let entries, let keyType, let valueType):
                try add(8)
                for entry in entries {
                    try same(entry.key, as: keyType)
                    try same(entry.value, as: valueType)
                    try add(8)
                    try self.value(entry.key, depth: depth + 2)
                    try self.value(entry.value, depth: depth + 2)
                }
            case .descriptor:
                throw invalid("this library sends no file descriptors")
            case .variant(let inner):
                let signature = inner.signature
                guard inner.hasPlainSignature || isValid(signature: signature) else {
                    throw invalid("“\(signature)” is no valid signature")
                }
                try add(signature.utf8.count + 2)
                try self.value(inner, depth: depth + 1)
            }
        }

        func same(_ value: DBusValue, as type: String) throws(DBusError) {
            let signature = value.signature
            guard signature == type else {
                throw invalid("an element of type “\(signature)” in a container of “\(type)”")
            }
        }
    }
}

extension DBusValue {
    /// Whether the signature is common and known to be valid.
    fileprivate var hasPlainSignature: Bool {
        switch self {
        case .byte, .boolean, .int16, .uint16, .int32, .uint32, .int64, .uint64, .double, .string, .bytes: true
        case .array(_, let element): element == "s" || element == "a{sv}"
        case .dictionary(_, let key, let value): key == "s" && value == "v"
        case .objectPath, .signature, .structure, .variant, .descriptor: false
        }
    }

    /// Whether this is a number, or a text that is far from every limit and free of U+0000.
    fileprivate var isSmallBasic: Bool {
        switch self {
        case .byte, .boolean, .int16, .uint16, .int32, .uint32, .int64, .uint64, .double: true
        case .string(let text): text.utf8.count <= 4096 && !text.containsNUL
        default: false
        }
    }
}
