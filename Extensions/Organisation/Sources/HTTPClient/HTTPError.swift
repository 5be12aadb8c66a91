/// The reason why a request got no usable response.
package struct HTTPError: Error, Sendable, Hashable, CustomStringConvertible {
    package enum Reason: Sendable, Hashable {
        /// No connection: the name is unknown, no process listens, or the network is down. In libcurl's words.
        case unreachable(String)
        /// The response was not complete in time.
        case timedOut
        /// The server has no valid certificate, or does not support TLS 1.2. In libcurl's words.
        case untrusted(String)
        /// The connection ended before the response did, or the response is not HTTP. In libcurl's words.
        case brokenOff(String)
        /// The body or the header has more than this number of bytes.
        case tooLarge(Int)
        /// The server redirects. The client does not follow, because a token in the request would go to another server.
        case redirected
        /// The response is compressed without a request for that. A small compressed response may expand to a very
        /// large one.
        case encoded(String)
        /// Too many requests are in flight, or the system grants no thread.
        case busy
        case cancelled
        /// The request is invalid: a field with characters that are not visible, or a body that is too large.
        case invalidRequest
    }

    package let reason: Reason
    /// The method, the server and the path, without the query.
    package let attempted: String

    package init(_ reason: Reason, attempted: String) {
        self.reason = reason
        self.attempted = attempted
    }

    /// The request, the cause and the remedy.
    package var description: String {
        let text =
            switch reason {
            case .unreachable(let text): "no connection (\(text)); check the network and the server's name"
            case .timedOut: "no complete response in time; check the network, and try again later"
            case .untrusted(let text):
                "the server is not trusted (\(text)); check its certificate, and name its authority in oidcTrustAnchors"
            case .brokenOff(let text): "the response was cut off (\(text)); try again later"
            case .tooLarge(let limit): "the response has more than \(limit) bytes; check that it is the right server"
            case .redirected: "the server redirects to another address, which is not followed; name the final address"
            case .encoded(let coding):
                "the response is compressed (\(coding)) without a request for it; check the proxies before the server"
            case .busy: "too many requests are under way; try again"
            case .cancelled: "cancelled"
            case .invalidRequest: "the request cannot be sent; its fields or its body are not acceptable"
            }
        return "\(attempted): \(text)"
    }

    /// Whether the same request may succeed later without any change.
    package var isTemporary: Bool {
        switch reason {
        case .unreachable, .timedOut, .brokenOff, .busy, .cancelled: true
        case .untrusted, .tooLarge, .redirected, .encoded, .invalidRequest: false
        }
    }
}
