import DBus
import Identity
import Synchronization

/// An HTTP client on libcurl, with one thread for all requests. A server that hangs delays no other request, and blocks
/// no thread of Swift's pool.
///
/// HTTP/1.1 with TLS 1.2 or newer and verified certificates; without TLS only on this machine (`HTTPAddress`). It
/// follows no redirects, keeps no cookies, reads no password files and decompresses nothing. It uses no proxy, even if
/// the environment names one: a variable must not decide where tokens go.
package final class HTTPClient: Sendable {
    /// The most requests that may be in flight.
    package static let capacity = 32

    private let loop: TransferLoop
    private let trustAnchors: String?
    private let patience: Int

    /// - Parameters:
    ///   - trustAnchors: The path of a PEM file with the trusted authorities, instead of the system's.
    ///   - patience: A factor for the time limits of requests. Tests use more than 1, so that they do not fail on a
    ///     busy machine.
    package init(trustAnchors: String? = nil, patience: Int = 1) {
        self.trustAnchors = trustAnchors
        self.patience = patience
        loop = TransferLoop(capacity: Self.capacity)
    }

    deinit { loop.close() }

    /// Sends a request, and returns the response with any status except a redirect.
    ///
    /// A cancelled task ends the request at once.
    package func send(_ request: HTTPRequest) async throws(HTTPError) -> HTTPResponse {
        guard Self.canBeSent(request) else { throw HTTPError(.invalidRequest, attempted: "\(request)") }
        var request = request
        request.limits.connect *= patience
        request.limits.total *= patience
        let identifier = loop.nextIdentifier()
        let result: Result<HTTPResponse, HTTPError> = await withTaskCancellationHandler { [request] in
            await withCheckedContinuation { continuation in
                let transfer = Transfer(identifier, request, trustAnchors: trustAnchors) {
                    continuation.resume(returning: $0)
                }
                if !loop.submit(transfer) {
                    continuation.resume(returning: .failure(HTTPError(.busy, attempted: "\(request)")))
                }
                // If the task was cancelled before `submit`, the cancellation handler came too early.
                if Task.isCancelled { loop.cancel(identifier) }
            }
        } onCancel: {
            loop.cancel(identifier)
        }
        return try result.get()
    }

    /// Whether the request has no character that could end a header line, and its body is small enough.
    private static func canBeSent(_ request: HTTPRequest) -> Bool {
        var fields = request.fields
        if case .post(let body, let contentType) = request.method {
            guard body.count <= HTTPLimits.requestSize else { return false }
            fields["content-type"] = contentType
        }
        return fields.allSatisfy { name, value in
            !name.isEmpty && name.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F && $0 != 0x3A }
                && !value.isEmpty && value.utf8.allSatisfy { $0 >= 0x20 && $0 < 0x7F }
        }
    }
}
