/// Why a text is not JSON, and where.
public enum JSONFlaw: Sendable {
    /// The same depth as `JSONDecoder`. The text is already in memory, and its size was checked when it was read.
    private static let limits = JSONLimits(size: .max, depth: 512, values: .max)

    /// The reason, with line and column, both counted from 1. `JSONDecoder` reports neither.
    public static func text(of json: [UInt8]) -> String { find(in: json)?.text ?? "it is no JSON object" }

    /// The problem with the text; `nil` if it is JSON without repeated keys.
    public static func find(in json: [UInt8]) -> (text: String, isRepeatedKey: Bool)? {
        do throws(JSONError) {
            _ = try JSONValue(parsing: json, limits: limits)
            return nil
        } catch {
            let isText = String(validating: json, as: UTF8.self) != nil
            guard isText, let offset = error.offset else { return ("it is not JSON: it is not UTF-8", false) }
            let place = place(offset, in: json)
            if let key = error.repeatedKey { return ("\(key.quoted) is there twice, again in \(place)", true) }
            return ("it is not JSON: \(error.what.map { "\($0) in" } ?? "it ends too early, in") \(place)", false)
        }
    }

    private static func place(_ offset: Int, in json: [UInt8]) -> String {
        let before = json.prefix(offset)
        let line = before.count { $0 == UInt8(ascii: "\n") } + 1
        let start = before.lastIndex(of: UInt8(ascii: "\n")).map { $0 + 1 } ?? before.startIndex
        return "line \(line), column \(String(decoding: before[start...], as: UTF8.self).count + 1)"
    }
}
