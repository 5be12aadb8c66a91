/// The line that a peer prints at the end of its work: `result KEY=VALUE KEY=VALUE …`.
struct ResultLine: Equatable {
    private let values: [String: String]
    private let line: String

    /// Throws `.malformedResult` for anything else than a result line.
    init(_ line: String) throws(BenchmarkError) {
        let words = line.split(separator: " ")
        guard words.first == "result" else { throw Self.malformed(line, "it does not begin with \"result\"") }
        var values: [String: String] = [:]
        for word in words.dropFirst() {
            guard let equals = word.firstIndex(of: "=") else { throw Self.malformed(line, "\"\(word)\" has no value") }
            values[String(word[..<equals])] = String(word[word.index(after: equals)...])
        }
        self.values = values
        self.line = line
    }

    /// Throws `.malformedResult` where the key is missing or its value is not a number.
    func integer(_ key: String) throws(BenchmarkError) -> Int {
        guard let text = values[key], let value = Int(text) else {
            throw Self.malformed(line, "\"\(key)\" is not there, or not a number")
        }
        return value
    }

    /// A list separated by commas. Throws as `integer` does.
    func integers(_ key: String) throws(BenchmarkError) -> [Int] {
        let parts = values[key]?.split(separator: ",") ?? []
        let numbers = parts.compactMap { Int($0) }
        guard !parts.isEmpty, numbers.count == parts.count else {
            throw Self.malformed(line, "\"\(key)\" is not there, or not a list of numbers")
        }
        return numbers
    }

    private static func malformed(_ line: String, _ reason: String) -> BenchmarkError {
        BenchmarkError(.malformedResult, "a peer printed \"\(line.prefix(80))\": \(reason)")
    }
}
