import Basics
package import Identity

/// A request to a server. Its description hides the body and the header fields: they contain secrets, tokens and codes.
package struct HTTPRequest: Sendable, Hashable, CustomStringConvertible {
    package enum Method: Sendable, Hashable {
        case get
        case post([UInt8], contentType: String)
    }

    package var method: Method
    package var address: HTTPAddress
    /// Additional header fields by name.
    package var fields: [String: String]
    package var limits: HTTPLimits

    package init(
        _ address: HTTPAddress,
        _ method: Method = .get,
        fields: [String: String] = [:],
        limits: HTTPLimits = HTTPLimits()
    ) {
        self.method = method
        self.address = address
        self.fields = fields
        self.limits = limits
    }

    /// Method, server and path.
    package var description: String {
        if case .get = method { "GET \(address)" } else { "POST \(address)" }
    }
}

/// The limits of a request: its time, and the size of the response.
package struct HTTPLimits: Sendable, Hashable {
    /// Until the connection and its TLS session are established, including the name lookup.
    package var connect: Duration
    /// From the beginning to the last byte.
    package var total: Duration
    /// Of the response body, in bytes.
    package var size: Int

    /// By default 5 s to connect and 10 s in total, as in other identity services on Linux, and 1 MiB.
    package init(connect: Duration = .seconds(5), total: Duration = .seconds(10), size: Int = 1024 * 1024) {
        self.connect = connect
        self.total = total
        self.size = size
    }

    /// Of the response header, in bytes; a larger one ends the request.
    package static let headerSize = 32 * 1024
    /// Of the request body, in bytes.
    package static let requestSize = 256 * 1024
}

package struct HTTPResponse: Sendable, Hashable {
    package var status: Int
    /// The header fields by lower-case name; of repeated fields only the last.
    package var fields: [String: String]
    /// At most as large as the request allows.
    package var body: [UInt8]

    package init(status: Int, fields: [String: String] = [:], body: [UInt8] = []) {
        self.status = status
        self.fields = fields
        self.body = body
    }

    /// `Retry-After` in seconds, at most 300 s. A date in this field is ignored.
    package var retryAfter: Duration? {
        fields["retry-after"].flatMap { UInt32($0) }.map { .seconds(min($0, 300)) }
    }
}
