import Basics
import FoundationEssentials
import Glibc

/// A file that an administrator writes and the broker trusts.
struct AdministratorFile {
    let path: String
    /// The maximum size in bytes. A larger file is a mistake, or an attack on the broker's memory.
    let maximumSize: Int
    /// The decision that the file makes, such as “whether this device is shared”. An error ends with it.
    let decides: String
    /// Whether the file has to belong to root, because root acts on its content.
    var mustBeRoots = false

    /// The content of the file; `nil` if the file or its directory is missing. Blocks the thread on the file system.
    func read() throws(ManagedConfigurationError) -> Data? {
        let info: stat
        let content: [UInt8]
        do throws(FileReadError) {
            let file = try ReadableFile(path)
            info = try file.status()
            content = info.st_mode & S_IFMT == S_IFREG ? try file.content(atMost: maximumSize) : []
        } catch {
            switch error {
            case .system where error.isMissing: return nil
            case .system: throw unreadable(error.reason)
            case .tooLarge: throw .init(.tooLarge, path, error.reason, remedy: "see that it is the right file")
            }
        }
        guard info.st_mode & S_IFMT == S_IFREG else { throw unreadable("it is not a regular file") }
        try info.checkWriters(path, decides: decides, mustBeRoots: mustBeRoots)
        return Data(content)
    }

    private func unreadable(_ message: String) -> ManagedConfigurationError {
        let remedy = "make it a regular file that the broker's user may read"
        return ManagedConfigurationError(.unreadable, path, message, remedy: remedy)
    }
}

extension stat {
    /// Refuses a file or a directory that untrusted users may write to.
    func checkWriters(_ path: String, decides: String, mustBeRoots: Bool) throws(ManagedConfigurationError) {
        guard st_mode & S_IWOTH == 0 else {
            let message = "every user may write to it, and so decide \(decides)"
            throw .init(.insecure, path, message, remedy: "run: chmod o-w \(path)")
        }
        guard mustBeRoots, st_uid != 0 || st_mode & S_IWGRP != 0 && st_gid != 0 else { return }
        let writer = st_uid == 0 ? "the group \(st_gid) may write to it" : "it belongs to user \(st_uid)"
        let message = "\(writer), who could so decide what root does: \(decides)"
        throw .init(.insecure, path, message, remedy: "run: chown root:root \(path) && chmod go-w \(path)")
    }
}

extension AdministratorFile {
    /// Decodes the value of a JSON object. The remedy shows `example`, the beginning of such an object.
    static func decode<Value: Decodable>(
        _ type: Value.Type,
        from json: Data,
        file: String,
        example: String
    ) throws(ManagedConfigurationError) -> Value {
        // Skip a byte order mark, which some editors write.
        let json = json.starts(with: [0xEF, 0xBB, 0xBF]) ? Data(json.dropFirst(3)) : json
        // Before the decoder, which accepts repeated keys and trailing commas.
        if let flaw = JSONFlaw.find(in: [UInt8](json)) {
            throw flaw.isRepeatedKey
                ? .init(.contradiction, file, flaw.text, remedy: "leave one")
                : .init(.invalidJSON, file, flaw.text, remedy: oneObject(example))
        }
        do {
            return try JSONDecoder().decode(type, from: json)
        } catch {
            var first = ManagedConfigurationError(error, in: json, file: file, example: example)
            first.further = furtherErrors(type, in: json, after: first, example: example)
            throw first
        }
    }

    /// The mistakes of other keys. Each is found by decoding again without the keys of the earlier mistakes.
    private static func furtherErrors<Value: Decodable>(
        _ type: Value.Type,
        in json: Data,
        after first: ManagedConfigurationError,
        example: String
    ) -> [ManagedConfigurationError] {
        guard var members = JSONValue(file: json)?.object else { return [] }
        var errors: [ManagedConfigurationError] = []
        var last = first
        while errors.count < mostFurtherErrors, let key = last.key, members.removeValue(forKey: key) != nil {
            let rest = Data(JSONValue.object(members).text.utf8)
            do {
                _ = try JSONDecoder().decode(type, from: rest)
                break
            } catch {
                last = ManagedConfigurationError(error, in: rest, file: first.file, example: example)
            }
            // Stop at the first mistake about a key that was removed: it is missing only for that reason.
            guard let key = last.key, members[key] != nil else { break }
            errors.append(last)
        }
        return errors
    }

    private static let mostFurtherErrors = 20

    /// The remedy for content that is not an object.
    fileprivate static func oneObject(_ example: String) -> String { "write one JSON object, such as \(example)" }
}

extension JSONValue {
    /// The value of a file that was read with a maximum size; `nil` if it is not JSON.
    init?(file content: Data) {
        guard let value = try? JSONValue(parsing: Array(content), limits: JSONLimits(size: content.count)) else {
            return nil
        }
        self = value
    }
}

/// A type of JSON value, as remedies name it.
protocol WrittenForm { static var form: String { get } }

extension Bool: WrittenForm { static var form: String { "true or false" } }
extension String: WrittenForm { static var form: String { "a string" } }
extension Double: WrittenForm { static var form: String { "a number" } }
extension Dictionary: WrittenForm { static var form: String { "an object" } }

extension ManagedConfigurationError {
    /// A decoder's error, with the key and the remedy.
    fileprivate init(_ error: any Error, in json: Data, file: String, example: String) {
        let (context, type) =
            switch error {
            case DecodingError.typeMismatch(let type, let context): (context, type as Any.Type?)
            case DecodingError.valueNotFound(let type, let context): (context, type)
            case DecodingError.dataCorrupted(let context), DecodingError.keyNotFound(_, let context): (context, nil)
            default: (DecodingError.Context(codingPath: [], debugDescription: "\(error)"), nil)
            }
        guard let key = context.codingPath.first?.stringValue else {
            let message = type == nil ? JSONFlaw.text(of: [UInt8](json)) : "it is JSON, but not an object"
            self.init(.invalidJSON, file, message, remedy: AdministratorFile.oneObject(example))
            return
        }
        guard let type else {
            let remedy = (context.underlyingError as? ValueFlaw)?.remedy
            let usual = "write another value, or leave the key out"
            self.init(.invalidValue, file, key: key, context.debugDescription, remedy: remedy ?? usual)
            return
        }
        let isElement = context.codingPath.count > 1
        let form = isElement ? nil : (type as? any WrittenForm.Type)?.form
        let found = context.codingPath.reduce(JSONValue(file: json)) { value, key in
            guard let index = key.intValue else { return value?[key.stringValue] }
            guard let elements = value?.array, elements.indices.contains(index) else { return nil }
            return elements[index]
        }
        // Numbers and Booleans are often written as strings by mistake.
        let isQuoted =
            found?.string != nil && ([Bool.self, Double.self, Switch.self] as [Any.Type]).contains { $0 == type }
        self.init(
            .wrongType,
            file,
            key: key,
            isElement
                ? "there is \(found?.kind ?? "something else") in the value"
                : "the value is \(found?.kind ?? "of the wrong type")",
            remedy: "write \(form ?? "an array of strings")\(isQuoted ? ", without quotation marks" : ""), "
                + "or leave the key out"
        )
    }
}

extension DecodingError {
    /// A value of the right type that is not valid. The remedy travels inside the decoder's error.
    static func invalid(_ message: String, remedy: String, at path: [any CodingKey]) -> DecodingError {
        let flaw = ValueFlaw(message, remedy)
        return .dataCorrupted(Context(codingPath: path, debugDescription: message, underlyingError: flaw))
    }
}

extension KeyedDecodingContainer {
    /// The value of an optional key; `null` does not count as absent.
    func optional<Value: Decodable>(_ key: Key) throws -> Value? {
        contains(key) ? try decode(Value.self, forKey: key) : nil
    }

    /// The string of an optional key, which has to fulfil a condition.
    func text(_ key: Key, _ flaw: String, remedy: String, where isFine: (String) -> Bool) throws -> String? {
        guard let text: String = try optional(key) else { return nil }
        guard isFine(text) else { throw DecodingError.invalid("“\(text)” \(flaw)", remedy: remedy, at: [key]) }
        return text
    }
}

extension Decoder {
    /// The error for a value of the right type that is not valid.
    func invalid(_ message: String, remedy: String) -> DecodingError {
        .invalid(message, remedy: remedy, at: codingPath)
    }

    /// The error for a value that does not have the form of this type, which explains the mistake.
    func otherForm(_ type: any WrittenForm.Type) -> DecodingError {
        .typeMismatch(type, DecodingError.Context(codingPath: codingPath, debugDescription: ""))
    }

    /// Reads a value that has to have the form of this type.
    func inForm<Value>(of type: any WrittenForm.Type, _ read: () throws -> Value) throws -> Value {
        do {
            return try read()
        } catch DecodingError.typeMismatch, DecodingError.valueNotFound {
            throw otherForm(type)
        }
    }

    /// The first key, in alphabetical order, that is not in `Key`.
    func unknownKey<Key: CodingKey>(beside: Key.Type) throws -> String? {
        try keys { Key(stringValue: $0) == nil }.first
    }

    /// The keys that fulfil the condition, in alphabetical order, except the name of a schema, which an editor reads.
    func keys(where isWanted: (String) -> Bool) throws -> [String] {
        try container(keyedBy: AnyKey.self).allKeys.map(\.stringValue)
            .filter { $0 != "$schema" && isWanted($0) }.sorted()
    }
}

struct AnyKey: CodingKey {
    let stringValue: String
    var intValue: Int? { nil }

    init(_ name: String) { stringValue = name }
    init(stringValue: String) { self.stringValue = stringValue }
    init?(intValue: Int) { nil }
}
