import HTTPListening

package struct LoopbackRequest: Sendable, Hashable {
    package enum Method: String, Sendable {
        case get = "GET"
        case post = "POST"
    }

    package let method: Method
    /// The target before its `?`, undecoded.
    package let path: String
    /// The target after its `?`; `nil` without one.
    package let query: String?
    /// The form data, undecoded; empty for `GET`.
    package let form: String
    /// The value of `Accept-Language`; empty if there is none.
    package let languages: String

    package init(
        _ path: String,
        method: Method = .get,
        query: String? = nil,
        form: String = "",
        languages: String = ""
    ) {
        self.method = method
        self.path = path
        self.query = query
        self.form = form
        self.languages = languages
    }

    /// The error for a request that the page does not serve.
    struct Refusal: Error, Hashable {
        let status: LoopbackResponse.Status
    }

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
        self.init(received.path, method: method, query: received.query, form: form, languages: languages)
    }
}
