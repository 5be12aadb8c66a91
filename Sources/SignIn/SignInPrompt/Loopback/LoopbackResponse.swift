import HTTPListening

/// A response of the page of a sign-in.
package struct LoopbackResponse: Sendable, Hashable {
    package enum Status: Int, Sendable {
        case ok = 200
        case malformed = 400
        case notFound = 404
        case conflict = 409
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

    /// The response with the headers that protect the page: nothing in it runs or loads, no other page frames it, and the pages that it leads to do
    /// not learn its address.
    var listenerResponse: ListenerResponse {
        let policy =
            "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
        let fields = [
            "Content-Type": "text/html; charset=utf-8",
            "Content-Security-Policy": policy,
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
        ]
        return ListenerResponse(status.rawValue, fields: fields, body: page)
    }
}
