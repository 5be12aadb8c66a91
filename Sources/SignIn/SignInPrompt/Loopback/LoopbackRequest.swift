/// A request to the page of a sign-in.
package struct LoopbackRequest: Sendable, Hashable {
    package enum Method: String, Sendable {
        case get = "GET"
        case post = "POST"
    }

    package let method: Method
    /// What comes before the `?` of its target, as it was sent.
    package let path: String
    /// What comes after it; `nil` without a `?`.
    package let query: String?
    /// The fields of a form, as they were sent; empty for `GET`.
    package let form: String

    package init(_ path: String, method: Method = .get, query: String? = nil, form: String = "") {
        self.method = method
        self.path = path
        self.query = query
        self.form = form
    }
}

/// Reads one request of HTTP/1.1 from bytes as they come. It knows what a browser sends to the page, and refuses everything else.
struct LoopbackReader {
    enum Progress: Equatable {
        case incomplete
        case request(LoopbackRequest)
        /// It is answered with this status.
        case refused(LoopbackResponse.Status)
    }

    /// Request line and headers. A provider's answer in the query is part of it.
    static let longestHead = 8192
    /// A name and a password, each byte of them escaped.
    static let longestForm = 16_384

    private let host: String
    private var bytes: [UInt8] = []
    private var head: Head?

    private struct Head {
        let request: LoopbackRequest
        /// Where the form begins.
        let end: Int
        let formLength: Int
    }

    /// - Parameter host: the one value of the header `Host` that is served: a page of another name that leads here gets nothing.
    init(host: String) { self.host = host }

    mutating func take(_ more: some Collection<UInt8>) -> Progress {
        bytes += more
        if head == nil {
            guard let end = Self.endOfHead(in: bytes) else {
                return bytes.count > Self.longestHead ? .refused(.headTooLarge) : .incomplete
            }
            guard end <= Self.longestHead else { return .refused(.headTooLarge) }
            switch parse(bytes[..<end], end: end) {
            case .success(let parsed): head = parsed
            case .failure(let refusal): return .refused(refusal.status)
            }
        }
        guard let head else { return .incomplete }
        guard head.request.method == .post else { return .request(head.request) }
        guard bytes.count >= head.end + head.formLength else { return .incomplete }
        guard let form = String(validating: bytes[head.end..<(head.end + head.formLength)], as: UTF8.self) else {
            return .refused(.malformed)
        }
        return .request(LoopbackRequest(head.request.path, method: .post, query: head.request.query, form: form))
    }

    private static func endOfHead(in bytes: [UInt8]) -> Int? {
        let mark: [UInt8] = [13, 10, 13, 10]
        return bytes.indices.dropLast(mark.count - 1).first {
            bytes[$0] == 13 && bytes[$0..<($0 + 4)].elementsEqual(mark)
        }
        .map { $0 + mark.count }
    }

    private struct Refusal: Error {
        let status: LoopbackResponse.Status
    }

    private func parse(_ bytes: ArraySlice<UInt8>, end: Int) -> Result<Head, Refusal> {
        Result { () throws(Refusal) in
            guard bytes.allSatisfy({ (0x20...0x7E).contains($0) || $0 == 13 || $0 == 10 || $0 == 9 }) else {
                throw Refusal(status: .malformed)
            }
            // Carriage return and line feed are one Character.
            var lines = String(decoding: bytes, as: UTF8.self).split(separator: "\r\n")
            guard !lines.isEmpty, !lines.contains(where: { $0.contains { $0 == "\r" || $0 == "\n" } }) else {
                throw Refusal(status: .malformed)
            }
            let words = lines.removeFirst().split(separator: " ", omittingEmptySubsequences: false)
            guard words.count == 3, words[1].hasPrefix("/"), words[2] == "HTTP/1.1" || words[2] == "HTTP/1.0" else {
                throw Refusal(status: .malformed)
            }
            guard let method = LoopbackRequest.Method(rawValue: String(words[0])) else {
                throw Refusal(status: .notFound)
            }
            let headers = try headers(lines)
            guard headers["host"] == host else { throw Refusal(status: .notFound) }
            let target = words[1].split(separator: "?", maxSplits: 1, omittingEmptySubsequences: false)
            return Head(
                request: LoopbackRequest(
                    String(target[0]),
                    method: method,
                    query: target.count > 1 ? String(target[1]) : nil
                ),
                end: end,
                formLength: try formLength(headers, method)
            )
        }
    }

    private func headers(_ lines: [Substring]) throws(Refusal) -> [String: String] {
        var headers: [String: String] = [:]
        for line in lines {
            guard let colon = line.firstIndex(of: ":"), colon > line.startIndex, !line.hasPrefix(" ") else {
                throw Refusal(status: .malformed)
            }
            let name = line[..<colon].lowercased()
            let value = line[line.index(after: colon)...].drop { $0 == " " || $0 == "\t" }
            // A header that decides where a request ends, or whom it is for, counts once.
            guard headers.updateValue(String(value), forKey: name) == nil || !Self.decisive.contains(name) else {
                throw Refusal(status: .malformed)
            }
        }
        return headers
    }

    private static let decisive: Set = ["host", "content-length", "content-type", "transfer-encoding"]

    private func formLength(_ headers: [String: String], _ method: LoopbackRequest.Method) throws(Refusal) -> Int {
        guard headers["transfer-encoding"] == nil else { throw Refusal(status: .malformed) }
        let text = headers["content-length"] ?? "0"
        guard text.utf8.allSatisfy({ (0x30...0x39).contains($0) }), !text.isEmpty else {
            throw Refusal(status: .malformed)
        }
        guard method == .post else {
            guard text == "0" else { throw Refusal(status: .malformed) }
            return 0
        }
        guard headers["content-type"]?.lowercased().hasPrefix("application/x-www-form-urlencoded") == true else {
            throw Refusal(status: .malformed)
        }
        guard let length = Int(text), length <= Self.longestForm else { throw Refusal(status: .formTooLarge) }
        return length
    }
}
