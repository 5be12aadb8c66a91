import Foundation

/// Looks how deep an XML property list is nested, before it is parsed: the parser calls itself for each level, and would
/// use up the stack.
enum XMLNesting {
    static func isWithin(_ maximumDepth: Int, _ content: Data) -> Bool {
        let bytes = [UInt8](content)
        var depth = 0
        var position = 0
        while let start = bytes[position...].firstIndex(of: UInt8(ascii: "<")) {
            let rest = bytes[start...]
            // What is in these is no element.
            if let end = skipped.first(where: { rest.starts(with: $0.start) })?.end {
                guard let next = after(end, in: bytes, from: start) else { return true }
                position = next
                continue
            }
            if opening.contains(where: { rest.starts(with: $0) }) {
                depth += 1
                guard depth <= maximumDepth else { return false }
                // <array/> is one level, and over at once.
                if let end = rest.firstIndex(of: UInt8(ascii: ">")), bytes[end - 1] == UInt8(ascii: "/") { depth -= 1 }
            } else if closing.contains(where: { rest.starts(with: $0) }) {
                depth = max(0, depth - 1)
            }
            position = start + 1
        }
        return true
    }

    private static let skipped = [("<!--", "-->"), ("<![CDATA[", "]]>"), ("<?", "?>")]
        .map { (start: Array($0.0.utf8), end: Array($0.1.utf8)) }
    private static let opening = ["<dict", "<array"].map { Array($0.utf8) }
    private static let closing = ["</dict", "</array"].map { Array($0.utf8) }

    private static func after(_ end: [UInt8], in bytes: [UInt8], from start: Int) -> Int? {
        var position = start
        while let next = bytes[position...].firstIndex(of: end[0]) {
            if bytes[next...].starts(with: end) { return next + end.count }
            position = next + 1
        }
        return nil
    }
}
