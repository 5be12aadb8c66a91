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
        let status: LoopbackResponse.Status
    }
}

extension LoopbackRequest {
    /// Accepts a browser's request for the page and refuses every other request.
    ///
    /// - Parameter host: the only accepted value of the header `Host`, so that other host names that resolve to this
    ///   machine are not served.
    init(_ received: ReceivedRequest, host: String) throws(Refusal) {
        guard let method = Method(rawValue: received.method), received.fields["host"] == host else {
            throw Refusal(status: .notFound)
        }
        let isForm =
            received.fields["content-type"]?.lowercased().hasPrefix("application/x-www-form-urlencoded") == true
        guard method == .post ? isForm : received.body.isEmpty,
            let form = String(validating: received.body, as: UTF8.self)
        else { throw Refusal(status: .malformed) }
        let languages = received.fields["accept-language"] ?? ""
        self.init(path: received.path, method: method, query: received.query, form: form, languages: languages)
    }
}

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
            "Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": policy,
            "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
            "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
        ]
        return ListenerResponse(status.rawValue, fields: fields, body: page)
    }
}
