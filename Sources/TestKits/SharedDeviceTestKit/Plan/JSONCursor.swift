import Basics
import FoundationEssentials

/// A value of a JSON document with its path, which errors contain.
struct JSONCursor {
    let path: String
    private let value: JSONValue

    /// Starts at the document's root, `$`.
    ///
    /// - Throws: ``CheckPlanError`` if the text is not JSON.
    init(document: Data) throws(CheckPlanError) {
        do {
            value = try JSONDecoder().decode(JSONValue.self, from: document)
        } catch {
            throw CheckPlanError("$", JSONFlaw.text(of: [UInt8](document)))
        }
        path = "$"
    }

    private init(_ value: JSONValue, path: String) { (self.value, self.path) = (value, path) }

    // MARK: Objects

    /// Returns the members of an object. An unknown key is an error.
    func object(keys known: [String]) throws(CheckPlanError) -> Members {
        guard case .object(let members) = value else { throw wrong("an object") }
        for key in members.keys.sorted() where !known.contains(key) {
            let names = known.map { "“\($0)”" }.joined(separator: ", ")
            throw CheckPlanError(Self.path(path, key), "there is no such key here; there are \(names)")
        }
        return Members(path: path, members: members)
    }

    /// Returns one member without checking the other keys, because its value decides which keys are known.
    func discriminator(_ key: String) throws(CheckPlanError) -> JSONCursor {
        guard case .object(let members) = value else { throw wrong("an object") }
        return try Members(path: path, members: members).required(key)
    }

    struct Members {
        let path: String
        fileprivate let members: [String: JSONValue]

        subscript(_ key: String) -> JSONCursor? {
            members[key].map { JSONCursor($0, path: JSONCursor.path(path, key)) }
        }

        func required(_ key: String) throws(CheckPlanError) -> JSONCursor {
            guard let found = self[key] else { throw CheckPlanError(path, "it lacks “\(key)”") }
            return found
        }
    }

    private static func path(_ path: String, _ key: String) -> String {
        let isPlain = !key.isEmpty && key.allSatisfy { $0.isASCII && ($0.isLetter || $0.isNumber || $0 == "_") }
        return isPlain ? "\(path).\(key)" : "\(path)[\"\(key.printable)\"]"
    }

    // MARK: Values

    func string() throws(CheckPlanError) -> String {
        guard case .string(let text) = value else { throw wrong("a string") }
        guard !text.isEmpty else { throw CheckPlanError(path, "it is empty") }
        return text
    }

    func boolean() throws(CheckPlanError) -> Bool {
        guard case .boolean(let flag) = value else { throw wrong("true or false") }
        return flag
    }

    /// Returns a number of milliseconds between zero and a day.
    func number() throws(CheckPlanError) -> Double {
        guard case .number(let number) = value else { throw wrong("a number") }
        guard (0...86_400_000).contains(number) else {
            throw CheckPlanError(path, "\(number) is not between 0 and 86400000")
        }
        return number
    }

    func elements() throws(CheckPlanError) -> [JSONCursor] {
        guard case .array(let elements) = value else { throw wrong("a list") }
        return elements.enumerated().map { JSONCursor($1, path: "\(path)[\($0)]") }
    }

    /// Returns the elements of a list of strings.
    func list() throws(CheckPlanError) -> [String] {
        try elements().map { (cursor) throws(CheckPlanError) in try cursor.string() }
    }

    func strings() throws(CheckPlanError) -> [String: String] {
        guard case .object(let members) = value else { throw wrong("an object with strings") }
        var made: [String: String] = [:]
        for (key, value) in members {
            guard case .string(let text) = value else {
                throw JSONCursor(value, path: Self.path(path, key)).wrong("a string")
            }
            made[key] = text
        }
        return made
    }

    func lists() throws(CheckPlanError) -> [String: [String]] {
        guard case .object(let members) = value else { throw wrong("an object with lists of strings") }
        var made: [String: [String]] = [:]
        for (key, value) in members { made[key] = try JSONCursor(value, path: Self.path(path, key)).list() }
        return made
    }

    func choice<Choice: RawRepresentable & CaseIterable>(_: Choice.Type) throws(CheckPlanError) -> Choice
    where Choice.RawValue == String {
        let text = try string()
        guard let choice = Choice(rawValue: text) else {
            let names = Choice.allCases.map { "“\($0.rawValue)”" }.joined(separator: ", ")
            throw CheckPlanError(path, "“\(text.printable)” is none of \(names)")
        }
        return choice
    }

    private func wrong(_ wanted: String) -> CheckPlanError {
        let kind =
            switch value {
            case .null: "null"
            case .boolean: "true or false"
            case .number: "a number"
            case .string: "a string"
            case .array: "a list"
            case .object: "an object"
            }
        return CheckPlanError(path, "it is \(kind), not \(wanted)")
    }
}
