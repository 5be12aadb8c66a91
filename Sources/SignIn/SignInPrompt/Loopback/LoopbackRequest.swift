import HTTPListening

/// A request to the page of a sign-in.
package struct LoopbackRequest: Sendable, Hashable {
    package enum Method: String, Sendable {
        case get = "GET"
        case post = "POST"
    }

    package let method: Method
    /// The part of the target before its `?`, as it was sent.
    package let path: String
    /// The part after it; `nil` without a `?`.
    package let query: String?
    /// The fields of a form, as they were sent; empty for `GET`.
    package let form: String

    package init(_ path: String, method: Method = .get, query: String? = nil, form: String = "") {
        self.method = method
        self.path = path
        self.query = query
        self.form = form
    }

    /// The response to a request that the page does not serve.
    struct Refusal: Error, Hashable {
        let status: LoopbackResponse.Status
    }

    /// Takes a browser's request to the page, and refuses everything else.
    ///
    /// - Parameter host: the one value of the header `Host` that is served: a page of another name that leads here gets nothing.
    init(_ received: ReceivedRequest, host: String) throws(Refusal) {
        guard let method = Method(rawValue: received.method), received.fields["host"] == host else {
            throw Refusal(status: .notFound)
        }
        let isForm =
            received.fields["content-type"]?.lowercased().hasPrefix("application/x-www-form-urlencoded") == true
        guard method == .post ? isForm : received.body.isEmpty,
            let form = String(validating: received.body, as: UTF8.self)
        else { throw Refusal(status: .malformed) }
        self.init(received.path, method: method, query: received.query, form: form)
    }
}
