/// A running contender in one role.
final class Peer {
    private let process: ChildProcess

    var processIdentifier: Int32 { process.identifier }

    /// Starts the contender. Throws `.systemCall`.
    init(_ contender: Contender, _ role: [String], on bus: PrivateBus) throws(BenchmarkError) {
        process = try ChildProcess(contender.command(role, address: bus.address))
    }

    /// Returns when the peer has connected and registered. Throws `.peer`, `.malformedResult`, `.interrupted`.
    func waitUntilReady() throws(BenchmarkError) {
        let line = try process.line(before: monotonicNanoseconds() + patience)
        guard line == "ready" else {
            throw BenchmarkError(.malformedResult, "\(process.name) printed \"\(line)\" before it was ready")
        }
    }

    /// Waits for the peer's result. Throws as `waitUntilReady` does.
    func result() throws(BenchmarkError) -> ResultLine {
        try ResultLine(try process.line(before: monotonicNanoseconds() + patience))
    }

    /// Waits until the peer has ended by itself. Throws as `waitUntilReady` does.
    func waitForEnd() throws(BenchmarkError) {
        _ = try process.remainder(before: monotonicNanoseconds() + patience)
    }

    /// Ends the peer, as its deallocation does.
    func stop() {
        process.stop()
    }
}

/// The line that a peer prints at the end of its work: `result KEY=VALUE KEY=VALUE …`.
struct ResultLine: Equatable {
    private let values: [String: String]
    private let line: String

    /// Throws `.malformedResult` for any other line.
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

    /// Throws `.malformedResult` if the key is missing or its value is not a number.
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
