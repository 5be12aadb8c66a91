import HTTPListening

package struct LoopbackResponse: Sendable, Hashable {
    package enum Status: Int, Sendable {
        case ok = 200
        case malformed = 400
        case notFound = 404
        case conflict = 409
    }

    package let status: Status
    package let page: String

    package init(_ status: Status, _ page: Page) {
        self.status = status
        self.page = page.html
    }

    /// The response to a request for any other page.
    package static func refusal(_ status: Status, _ texts: PromptTexts = .english) -> LoopbackResponse {
        LoopbackResponse(status, .message(texts[.notHereTitle], texts[.notHere], texts))
    }

    /// The response with the headers that protect the page: no script or resource loads, no page can frame it, and
    /// linked pages do not learn its address.
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
