import DBusTransport
import Synchronization

/// Asks servers, by libcurl, on one thread for all requests: a server that hangs delays no other one, and no thread of Swift's pool waits.
///
/// HTTP/1.1 with TLS 1.2 or newer, whose certificates are always checked; without TLS only on this machine (`HTTPAddress`). No redirect is
/// followed, no cookie kept, no password file read, nothing decompressed. No proxy is used, not even one that the environment names: on a device
/// whose provider is reached through one only, a name in the environment would otherwise decide where tokens go.
package final class HTTPClient: Sendable {
    /// How many requests may be under way.
    package static let capacity = 32

    private let loop: TransferLoop
    private let trustAnchors: String?
    private let patience: Int

    /// - Parameters:
    ///   - trustAnchors: the path of a PEM file with the authorities that servers are trusted by, in place of the system's.
    ///   - patience: how many times as long as its limits say a request may take. A test of what an answer means has more than 1: it is not to
    ///     fail on a machine that is busy.
    package init(trustAnchors: String? = nil, patience: Int = 1) {
        self.trustAnchors = trustAnchors
        self.patience = patience
        loop = TransferLoop(capacity: Self.capacity)
    }

    deinit { loop.close() }

    /// The server's answer, whatever its status, except for redirects.
    ///
    /// When the task is cancelled, the request ends at once.
    ///
    /// - Throws: `HTTPError`.
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
                // A task that was cancelled before that has called `cancel` too early.
                if Task.isCancelled { loop.cancel(identifier) }
            }
        } onCancel: {
            loop.cancel(identifier)
        }
        return try result.get()
    }

    /// Whether nothing in it could end a line of the header.
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
