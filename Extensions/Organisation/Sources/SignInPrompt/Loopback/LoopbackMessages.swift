import HTTPListening

package struct LoopbackRequest: Sendable, Hashable {
    package enum Method: String, Sendable {
        case get = "GET"
        case post = "POST"
    }

    /// The target before its `?`, undecoded.
    package var path: String
    package var method = Method.get
    /// The target after its `?`; `nil` without one.
    package var query: String?
    /// The form data, undecoded; empty for `GET`.
    package var form = ""
    /// The value of `Accept-Language`; empty if there is none.
    package var languages = ""

    /// The error for a request that the page does not serve.
    struct Refusal: Error, Hashable {
        let status: Int
    }
}

extension LoopbackRequest {
    /// Accepts a browser's request for the page and refuses every other request.
    ///
    /// - Parameter host: the only accepted value of the header `Host`, so that other host names that resolve to this
    ///   machine are not served.
    init(_ received: ReceivedRequest, host: String) throws(Refusal) {
        guard let method = Method(rawValue: received.method), received.fields["host"] == host else {
            throw Refusal(status: 404)
        }
        let isForm =
            received.fields["content-type"]?.lowercased().hasPrefix("application/x-www-form-urlencoded") == true
        guard method == .post ? isForm : received.body.isEmpty,
            let form = String(validating: received.body, as: UTF8.self)
        else { throw Refusal(status: 400) }
        let languages = received.fields["accept-language"] ?? ""
        self.init(path: received.path, method: method, query: received.query, form: form, languages: languages)
    }
}

extension ListenerResponse {
    /// A page, with the headers that protect it: no script or resource loads, no page can frame it, and linked pages do
    /// not learn its address.
    init(_ status: Int = 200, page: Page) {
        let policy =
            "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
        let fields = [
            "Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": policy,
            "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
            "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
        ]
        self.init(status, fields: fields, body: page.html)
    }

    /// The response to a request for any other page.
    static func refusal(_ status: Int, _ texts: PromptTexts = .english) -> ListenerResponse {
        ListenerResponse(status, page: .message(texts[.notHereTitle], texts[.notHere], texts))
    }
}
