/// A request that a stranger has sent.
package struct ReceivedRequest: Sendable, Hashable {
    package let method: String
    /// Without the query.
    package let path: String
    /// By names in lower case; each there once.
    package let fields: [String: String]
    package let body: [UInt8]

    package init(method: String, path: String, fields: [String: String] = [:], body: [UInt8] = []) {
        self.method = method
        self.path = path
        self.fields = fields
        self.body = body
    }
}

/// What it is answered. Nobody keeps a copy on the way, and the connection ends.
package struct ListenerResponse: Sendable, Hashable {
    package let status: Int
    /// JSON.
    package let body: String

    package init(_ status: Int, _ body: String = "") {
        self.status = status
        self.body = body
    }

    private var reason: String {
        switch status {
        case 200: "OK"
        case 400: "Bad Request"
        case 404: "Not Found"
        case 405: "Method Not Allowed"
        case 408: "Request Timeout"
        case 411: "Length Required"
        case 413: "Content Too Large"
        case 415: "Unsupported Media Type"
        case 429: "Too Many Requests"
        case 431: "Request Header Fields Too Large"
        case 501: "Not Implemented"
        default: "Status"
        }
    }

    /// As it goes over the wire (RFC 9112).
    package var bytes: [UInt8] {
        var head = ["HTTP/1.1 \(status) \(reason)", "Content-Length: \(body.utf8.count)", "Cache-Control: no-store"]
        head.append("Connection: close")
        if !body.isEmpty { head.append("Content-Type: application/json") }
        if status == 429 { head.append("Retry-After: 1") }
        return Array((head.joined(separator: "\r\n") + "\r\n\r\n" + body).utf8)
    }
}

/// Puts a request together from what arrives of it (RFC 9112), with bounds. Pure.
package struct RequestParser: Sendable {
    /// In bytes, up to the empty line.
    package static let longestHeader = 8 << 10
    /// In bytes.
    package static let longestBody = 64 << 10

    package enum Progress: Sendable, Hashable {
        case incomplete
        case complete(ReceivedRequest)
        /// It is answered by this status.
        case refused(Int)
    }

    private struct Head {
        let method: String
        let path: String
        let fields: [String: String]
        let length: Int
    }

    private var bytes: [UInt8] = []
    private var head: Head?

    package init() {}

    /// Takes what has arrived. After another answer than `incomplete` nothing more is taken.
    package mutating func take(_ chunk: some Collection<UInt8>) -> Progress {
        // The end of the header may have begun in the last chunk.
        let searched = max(0, bytes.count - 3)
        bytes += chunk
        if head == nil {
            guard let end = endOfHeader(from: searched) else {
                return bytes.count > Self.longestHeader ? .refused(431) : .incomplete
            }
            guard end <= Self.longestHeader else { return .refused(431) }
            switch Self.parse(bytes[..<end]) {
            case .success(let parsed): head = parsed
            case .failure(let refusal): return .refused(refusal.status)
            }
            bytes.removeFirst(end + 4)
        }
        guard let head, bytes.count >= head.length else { return .incomplete }
        let body = Array(bytes[..<head.length])
        return .complete(ReceivedRequest(method: head.method, path: head.path, fields: head.fields, body: body))
    }

    private func endOfHeader(from start: Int) -> Int? {
        let end: [UInt8] = [13, 10, 13, 10]
        guard bytes.count >= end.count else { return nil }
        return (start...bytes.count - end.count).first { bytes[$0..<$0 + end.count].elementsEqual(end) }
    }

    private struct Refusal: Error {
        let status: Int
    }

    private static func parse(_ header: ArraySlice<UInt8>) -> Result<Head, Refusal> {
        // A line that is folded, or ended otherwise, could be read in two ways.
        guard header.allSatisfy({ $0 == 13 || $0 == 10 || $0 == 9 || (0x20...0x7E).contains($0) }),
            let text = String(validating: header, as: UTF8.self)
        else { return .failure(Refusal(status: 400)) }
        let lines = text.utf8.split(separator: 10, omittingEmptySubsequences: false)
            .map { String(Substring($0)) }
        guard lines.dropLast().allSatisfy({ $0.utf8.last == 13 && $0.utf8.dropLast().allSatisfy { $0 != 13 } }),
            lines.last?.utf8.contains(13) == false
        else { return .failure(Refusal(status: 400)) }
        let request = (lines.first ?? "").utf8.filter { $0 != 13 }.split(
            separator: 32,
            omittingEmptySubsequences: false
        )
        .map { String(decoding: $0, as: UTF8.self) }
        guard request.count == 3, request[1].hasPrefix("/"), ["HTTP/1.1", "HTTP/1.0"].contains(request[2]) else {
            return .failure(Refusal(status: 400))
        }
        var fields: [String: String] = [:]
        for line in lines.dropFirst() {
            let parts = line.utf8.filter { $0 != 13 }.split(
                separator: 58,
                maxSplits: 1,
                omittingEmptySubsequences: false
            )
            .map { String(decoding: $0, as: UTF8.self) }
            // Several of one name could be read in two ways.
            guard parts.count == 2, !parts[0].isEmpty, parts[0].utf8.allSatisfy({ $0 > 32 }),
                fields.updateValue(trimmed(parts[1]), forKey: parts[0].lowercased()) == nil
            else { return .failure(Refusal(status: 400)) }
        }
        guard fields["transfer-encoding"] == nil else { return .failure(Refusal(status: 501)) }
        var length = 0
        if let text = fields["content-length"] {
            guard !text.isEmpty, text.utf8.allSatisfy({ (0x30...0x39).contains($0) }) else {
                return .failure(Refusal(status: 400))
            }
            guard let number = Int(text), number <= longestBody else { return .failure(Refusal(status: 413)) }
            length = number
        } else if request[0] == "POST" {
            return .failure(Refusal(status: 411))
        }
        let path = String(request[1].prefix { $0 != "?" })
        return .success(Head(method: request[0], path: path, fields: fields, length: length))
    }

    private static func trimmed(_ text: String) -> String {
        let isSpace = { (byte: UInt8) in byte == 32 || byte == 9 }
        let rest = text.utf8.drop(while: isSpace)
        let count = rest.reversed().prefix(while: isSpace).count
        return String(decoding: rest.dropLast(count), as: UTF8.self)
    }
}

/// How many requests are taken: so many a second, and as many at once after a quiet time. Pure.
package struct RequestRate: Sendable {
    private let perSecond: Double
    private var room: Double
    private var last: ContinuousClock.Instant

    package init(perSecond: Int, at now: ContinuousClock.Instant) {
        self.perSecond = Double(perSecond)
        room = Double(perSecond)
        last = now
    }

    /// - Returns: whether there is room for one more.
    package mutating func take(at now: ContinuousClock.Instant) -> Bool {
        room = min(perSecond, room + (now - last) / .seconds(1) * perSecond)
        last = now
        guard room >= 1 else { return false }
        room -= 1
        return true
    }
}
