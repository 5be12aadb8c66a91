import Glibc

package struct ReceivedRequest: Sendable, Hashable {
    package var method: String
    /// The target before its `?`, as it was sent.
    package var path: String
    /// The target after its `?`; `nil` without one.
    package var query: String?
    /// The header fields by lower-case name. Each name is unique.
    package var fields: [String: String] = [:]
    package var body: [UInt8] = []
}

/// A response. It forbids caching and ends the connection.
package struct ListenerResponse: Sendable, Hashable {
    package let status: Int
    package let fields: [String: String]
    package let body: String

    package init(_ status: Int, fields: [String: String] = [:], body: String = "") {
        self.status = status
        self.fields = fields
        self.body = body
    }

    private var reason: String {
        switch status {
        case 200: "OK"
        case 400: "Bad Request"
        case 404: "Not Found"
        case 405: "Method Not Allowed"
        case 408: "Request Timeout"
        case 409: "Conflict"
        case 411: "Length Required"
        case 413: "Content Too Large"
        case 415: "Unsupported Media Type"
        case 429: "Too Many Requests"
        case 431: "Request Header Fields Too Large"
        case 501: "Not Implemented"
        default: "Status"
        }
    }

    var bytes: [UInt8] {
        var head = "HTTP/1.1 \(status) \(reason)\r\nContent-Length: \(body.utf8.count)\r\n"
        head += "Cache-Control: no-store\r\nConnection: close\r\n"
        for (name, value) in fields.sorted(by: { $0.key < $1.key }) { head += "\(name): \(value)\r\n" }
        return Array((head + "\r\n" + body).utf8)
    }
}

/// Parses a request incrementally (RFC 9112), with limits. Rejects requests that two readers could understand
/// differently.
struct RequestParser: Sendable {
    /// In bytes, up to the empty line.
    static let longestHeader = 8 << 10
    /// In bytes.
    static let longestBody = 64 << 10

    enum Progress: Sendable, Hashable {
        case incomplete
        case complete(ReceivedRequest)
        /// The request is invalid, and the response has this status.
        case refused(Int)
    }

    private struct Refusal: Error {
        let status: Int
    }

    private var bytes: [UInt8] = []
    /// The request without its body, and the length of the body.
    private var head: (request: ReceivedRequest, length: Int)?

    /// Takes the next bytes. Must not be called again after a result other than `incomplete`.
    mutating func take(_ chunk: some Collection<UInt8>) -> Progress {
        // The end of the header may have begun in the last chunk.
        let searched = max(0, bytes.count - 3)
        bytes += chunk
        do throws(Refusal) {
            if head == nil {
                let end = endOfHeader(from: searched)
                guard end ?? bytes.count <= Self.longestHeader else { throw Refusal(status: 431) }
                guard let end else { return .incomplete }
                head = try Self.parse(bytes[..<end])
                bytes.removeFirst(end + 4)
            }
            guard let head, bytes.count >= head.length else { return .incomplete }
            var request = head.request
            request.body = Array(bytes[..<head.length])
            return .complete(request)
        } catch {
            return .refused(error.status)
        }
    }

    /// - Returns: The offset of the empty line that ends the header.
    private func endOfHeader(from start: Int) -> Int? {
        bytes.withUnsafeBytes { bytes in
            var next = start + 3
            // Untrusted input may be long, so memchr looks for line feeds only.
            while next < bytes.count, let found = memchr(bytes.baseAddress! + next, 10, bytes.count - next) {
                let end = UnsafeRawPointer(found) - bytes.baseAddress!
                if bytes[end - 1] == 13, bytes[end - 2] == 10, bytes[end - 3] == 13 { return end - 3 }
                next = end + 1
            }
            return nil
        }
    }

    private static func parse(_ header: ArraySlice<UInt8>) throws(Refusal) -> (ReceivedRequest, Int) {
        var lines = try lines(header)
        let target = lines.removeFirst().split(separator: " ", omittingEmptySubsequences: false)
        guard target.count == 3, target[1].hasPrefix("/"), target[2] == "HTTP/1.1" || target[2] == "HTTP/1.0" else {
            throw Refusal(status: 400)
        }
        var fields: [String: String] = [:]
        for line in lines {
            let parts = line.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
            // A folded line begins with a space, which no name contains. A repeated name is ambiguous.
            guard parts.count == 2, !parts[0].isEmpty, parts[0].utf8.allSatisfy({ $0 > 32 }),
                fields.updateValue(trimmed(parts[1]), forKey: parts[0].lowercased()) == nil
            else { throw Refusal(status: 400) }
        }
        guard fields["transfer-encoding"] == nil else { throw Refusal(status: 501) }
        let words = target[1].split(separator: "?", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
        let request = ReceivedRequest(
            method: String(target[0]),
            path: words[0],
            query: words.count > 1 ? words[1] : nil,
            fields: fields
        )
        return (request, try length(request))
    }

    /// - Returns: At least one line.
    private static func lines(_ header: ArraySlice<UInt8>) throws(Refusal) -> [Substring] {
        let isText = { (byte: UInt8) in (0x20...0x7E).contains(byte) || byte == 9 }
        var lines: [Substring] = []
        let pieces = header.split(separator: 10, omittingEmptySubsequences: false)
        for (number, piece) in pieces.enumerated() {
            // Each line ends with CR LF. CR and LF occur nowhere else.
            let isLast = number == pieces.count - 1
            let line = isLast ? piece : piece.dropLast()
            guard isLast || piece.last == 13, line.allSatisfy(isText) else { throw Refusal(status: 400) }
            lines.append(Substring(decoding: line, as: UTF8.self))
        }
        return lines
    }

    private static func length(_ request: ReceivedRequest) throws(Refusal) -> Int {
        guard let text = request.fields["content-length"] else {
            guard request.method != "POST" else { throw Refusal(status: 411) }
            return 0
        }
        guard !text.isEmpty, text.utf8.allSatisfy({ (0x30...0x39).contains($0) }) else { throw Refusal(status: 400) }
        guard let number = Int(text), number <= longestBody else { throw Refusal(status: 413) }
        return number
    }

    private static func trimmed(_ text: Substring) -> String {
        let isSpace = { (character: Character) in character == " " || character == "\t" }
        let rest = text.drop(while: isSpace)
        return String(rest.prefix(rest.count - rest.reversed().prefix(while: isSpace).count))
    }
}
