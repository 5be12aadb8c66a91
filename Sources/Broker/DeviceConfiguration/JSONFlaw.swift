package import Foundation

/// Why a text is not JSON, and where.
package enum JSONFlaw {
    /// What keeps it from being JSON, with line and column, both counted from 1. `JSONDecoder` does not say so; the other parser has the place.
    package static func text(of json: Data) -> String {
        do {
            _ = try JSONSerialization.jsonObject(with: json, options: .fragmentsAllowed)
            return "it is no JSON object"
        } catch {
            let text = (error as NSError).userInfo[NSDebugDescriptionErrorKey] as? String ?? ""
            guard let place = text.firstMatch(of: /around character ([0-9]+)/), let offset = Int(place.1) else {
                // The parser says that the text ends too early.
                return "it is not JSON: it ends too early, in \(self.place(json.count, in: json))"
            }
            let what = text[..<place.range.lowerBound].trimmingCharacters(in: .whitespaces).lowercased()
            return "it is not JSON: \(what) in \(self.place(offset, in: json))"
        }
    }

    private static func place(_ offset: Int, in json: Data) -> String {
        let before = json.prefix(offset)
        let line = before.count { $0 == UInt8(ascii: "\n") } + 1
        let start = before.lastIndex(of: UInt8(ascii: "\n")).map { $0 + 1 } ?? before.startIndex
        return "line \(line), column \(String(decoding: before[start...], as: UTF8.self).count + 1)"
    }
}
