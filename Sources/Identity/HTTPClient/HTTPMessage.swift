package import StrictJSON

/// A question to a server. It shows neither its body nor its header fields in a log: they hold secrets, tokens and codes.
package struct HTTPRequest: Sendable, Hashable, CustomStringConvertible {
    /// What is asked for.
    package enum Method: Sendable, Hashable {
        case get
        /// With this body, of this type.
        case post([UInt8], contentType: String)

        /// Whether a server that gets the request twice does what it does for one.
        var isRepeatable: Bool { self == .get }
    }

    package var method: Method
    package var address: HTTPAddress
    /// Beyond those that every request has: name and value.
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

/// How long a question may take, and how large its answer may be.
package struct HTTPLimits: Sendable, Hashable {
    /// Until there is a connection, with TLS: also what the answer to a name costs.
    package var connect: Duration
    /// From the beginning to the last byte.
    package var total: Duration
    /// Of the answer's body, in bytes.
    package var size: Int

    /// Five seconds for the connection and ten for all, which is what other identity services of Linux allow, and 1 MiB.
    package init(connect: Duration = .seconds(5), total: Duration = .seconds(10), size: Int = 1024 * 1024) {
        self.connect = connect
        self.total = total
        self.size = size
    }

    /// Of an answer's header, in bytes: larger ones end the request.
    package static let headerSize = 32 * 1024
    /// Of a request's body, in bytes.
    package static let requestSize = 256 * 1024
}

/// What a server answered.
package struct HTTPResponse: Sendable, Hashable {
    package var status: Int
    /// By names in lower case; of several fields with one name the last.
    package var fields: [String: String]
    /// At most as large as the request allowed.
    package var body: [UInt8]

    package init(status: Int, fields: [String: String] = [:], body: [UInt8] = []) {
        self.status = status
        self.fields = fields
        self.body = body
    }

    /// The media type without its parameters, in lower case.
    package var mediaType: String? {
        fields["content-type"].map { type in
            let name = type.prefix { $0 != ";" }.filter { $0 != " " && $0 != "\t" }
            return name.lowercased()
        }
    }

    /// How long the server wants to be left alone, from `Retry-After` in seconds; its other form, a date, is not heeded. At most 300 s.
    package var retryAfter: Duration? {
        fields["retry-after"].flatMap { UInt32($0) }.map { .seconds(min($0, 300)) }
    }
}
