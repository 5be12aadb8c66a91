package import FoundationEssentials
import StrictJSON

/// Why a text is not JSON, and where.
package enum JSONFlaw {
    /// As deep as `JSONDecoder` goes. The text is in memory already, and its size was checked when it was read.
    private static let limits = JSONLimits(size: .max, depth: 512, values: .max)

    /// What keeps it from being JSON, with line and column, both counted from 1. `JSONDecoder` says neither.
    package static func text(of json: Data) -> String {
        do throws(JSONError) {
            _ = try JSONValue(parsing: [UInt8](json), limits: limits)
            return "it is no JSON object"
        } catch {
            let isText = String(validating: json, as: UTF8.self) != nil
            guard isText, let offset = error.offset else { return "it is not JSON: it is not UTF-8" }
            return
                "it is not JSON: \(error.what.map { "\($0) in" } ?? "it ends too early, in") \(place(offset, in: json))"
        }
    }

    private static func place(_ offset: Int, in json: Data) -> String {
        let before = json.prefix(offset)
        let line = before.count { $0 == UInt8(ascii: "\n") } + 1
        let start = before.lastIndex(of: UInt8(ascii: "\n")).map { $0 + 1 } ?? before.startIndex
        return "line \(line), column \(String(decoding: before[start...], as: UTF8.self).count + 1)"
    }
}
