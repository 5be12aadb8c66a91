/// An answer of the page of a sign-in.
package struct LoopbackResponse: Sendable, Hashable {
    package enum Status: Int, Sendable {
        case ok = 200
        case malformed = 400
        case notFound = 404
        case tooSlow = 408
        case conflict = 409
        case formTooLarge = 413
        case headTooLarge = 431

        fileprivate var reason: String {
            switch self {
            case .ok: "OK"
            case .malformed: "Bad Request"
            case .notFound: "Not Found"
            case .tooSlow: "Request Timeout"
            case .conflict: "Conflict"
            case .formTooLarge: "Content Too Large"
            case .headTooLarge: "Request Header Fields Too Large"
            }
        }
    }

    package let status: Status
    /// A page of HTML.
    package let page: String

    package init(_ status: Status, _ page: Page) {
        self.status = status
        self.page = page.html
    }

    /// For what is not the page of this sign-in.
    package static func refusal(_ status: Status) -> LoopbackResponse {
        LoopbackResponse(status, .message("Not here", "This address serves one sign-in and nothing else."))
    }

    /// As it is sent. No copy stays anywhere, nothing in the page runs or loads, no other page frames it, and what it leads to does not learn its
    /// address.
    var bytes: [UInt8] {
        let policy =
            "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
        let head = [
            "HTTP/1.1 \(status.rawValue) \(status.reason)",
            "Content-Type: text/html; charset=utf-8",
            "Content-Length: \(page.utf8.count)",
            "Cache-Control: no-store",
            "Content-Security-Policy: \(policy)",
            "X-Content-Type-Options: nosniff",
            "X-Frame-Options: DENY",
            "Referrer-Policy: no-referrer",
            "Cross-Origin-Opener-Policy: same-origin",
            "Cross-Origin-Resource-Policy: same-origin",
            "Connection: close",
        ]
        return Array((head.joined(separator: "\r\n") + "\r\n\r\n" + page).utf8)
    }
}
