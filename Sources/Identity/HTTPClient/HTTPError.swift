/// Why a server gave no answer that can be used.
package struct HTTPError: Error, Sendable, Hashable, CustomStringConvertible {
    package enum Reason: Sendable, Hashable {
        /// No connection: the name is unknown, nobody listens, the network is down; in libcurl's words.
        case unreachable(String)
        /// There was no whole answer in time.
        case timedOut
        /// The server could not prove who it is, or speaks no TLS 1.2; in libcurl's words.
        case untrusted(String)
        /// The connection ended before the answer did, or what came is no HTTP; in libcurl's words.
        case brokenOff(String)
        /// Body or header are larger than this many bytes.
        case tooLarge(Int)
        /// The server sends us elsewhere. Nobody asks there: a token would travel with the question.
        case redirected
        /// The answer is compressed, which nobody asked for: a small one may become very large.
        case encoded(String)
        /// Too many requests are under way, or the system grants no thread.
        case busy
        /// The task was cancelled.
        case cancelled
        /// The request is not one that can be sent: a name or value of a field with other than visible characters, a body that is too large.
        case invalidRequest
    }

    package let reason: Reason
    /// Method, server and path that were asked, without the query.
    package let attempted: String

    package init(_ reason: Reason, attempted: String) {
        self.reason = reason
        self.attempted = attempted
    }

    /// What was attempted, what happened, and what helps.
    package var description: String { "\(attempted): \(reasonText)" }

    /// What happened, and what helps, without what was attempted.
    package var reasonText: String {
        switch reason {
        case .unreachable(let text): "no connection (\(text)); check the network and the server's name"
        case .timedOut: "no whole answer in time; check the network, and try again later"
        case .untrusted(let text):
            "the server is not trusted (\(text)); check its certificate, and name its authority in oidcTrustAnchors"
        case .brokenOff(let text): "the answer broke off (\(text)); try again later"
        case .tooLarge(let limit): "the answer has more than \(limit) bytes; check that it is the right server"
        case .redirected: "the server sends to another address, which is not followed; name the final address"
        case .encoded(let coding):
            "the answer is compressed (\(coding)), which was not asked for; check what stands between here and the server"
        case .busy: "too many requests are under way; try again"
        case .cancelled: "cancelled"
        case .invalidRequest: "the request cannot be sent; its fields or its body are not acceptable"
        }
    }

    /// Whether the same request may succeed later without anything being changed.
    package var isTemporary: Bool {
        switch reason {
        case .unreachable, .timedOut, .brokenOff, .busy, .cancelled: true
        case .untrusted, .tooLarge, .redirected, .encoded, .invalidRequest: false
        }
    }
}
