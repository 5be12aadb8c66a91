import Basics
import CCurl
import DBus
import Identity

/// One request and its response, as a libcurl transfer.
///
/// Unchecked: one thread creates it and hands it to the loop's thread. From then on only that thread uses it.
final class Transfer: @unchecked Sendable {
    let identifier: UInt64
    /// libcurl's handle; `nil` if libcurl has no memory or does not support a required option.
    private(set) var handle: UnsafeMutableRawPointer?
    private let request: HTTPRequest
    private let completion: (Result<HTTPResponse, HTTPError>) -> Void
    private var fields: [String: String] = [:]
    private var headerSize = 0
    private var body: [UInt8] = []
    /// Why this side ended the transfer.
    private var refusal: HTTPError.Reason?
    private var headerLines: UnsafeMutablePointer<curl_slist>?
    /// The buffer for libcurl's error message.
    private let message = UnsafeMutablePointer<CChar>.allocate(capacity: Int(CURL_ERROR_SIZE))

    /// - Parameter completion: Called once, on the loop's thread.
    init(
        _ identifier: UInt64,
        _ request: HTTPRequest,
        trustAnchors: String?,
        completion: @escaping (Result<HTTPResponse, HTTPError>) -> Void
    ) {
        self.identifier = identifier
        self.request = request
        self.completion = completion
        message.initialize(repeating: 0, count: Int(CURL_ERROR_SIZE))
        handle = curl_easy_init()
        guard let handle, !setUp(handle, trustAnchors) else { return }
        curl_easy_cleanup(handle)
        self.handle = nil
    }

    deinit {
        if let handle { curl_easy_cleanup(handle) }
        curl_slist_free_all(headerLines)
        message.deallocate()
    }

    // MARK: Setting up

    /// - Returns: Whether libcurl supports every option. Otherwise nothing is sent.
    private func setUp(_ handle: UnsafeMutableRawPointer, _ trustAnchors: String?) -> Bool {
        let limits = request.limits
        let numbers: [(CURLoption, Int)] = [
            (CURLOPT_NOSIGNAL, 1),
            (CURLOPT_FOLLOWLOCATION, 0),
            (CURLOPT_HTTP_VERSION, Int(CURL_HTTP_VERSION_1_1)),
            (CURLOPT_DISALLOW_USERNAME_IN_URL, 1),
            (CURLOPT_SSLVERSION, Int(CURL_SSLVERSION_TLSv1_2)),
            (CURLOPT_SSL_VERIFYPEER, 1),
            (CURLOPT_SSL_VERIFYHOST, 2),
            (CURLOPT_NETRC, Int(CURL_NETRC_IGNORED.rawValue)),
            (CURLOPT_CONNECTTIMEOUT_MS, Self.milliseconds(limits.connect)),
            (CURLOPT_TIMEOUT_MS, Self.milliseconds(limits.total)),
            // Otherwise the end of a transfer waits for a name server that does not respond.
            (CURLOPT_QUICK_EXIT, 1),
            // On a reused connection, libcurl repeats a request if the connection ends before the response begins. A
            // code and a refresh token may be sent only once.
            (CURLOPT_FRESH_CONNECT, request.method == .get ? 0 : 1),
        ]
        let texts: [(CURLoption, String)] = [
            (CURLOPT_URL, request.address.text),
            (CURLOPT_PROTOCOLS_STR, request.address.isSecure ? "https" : "http"),
            // No proxy, whatever the environment says.
            (CURLOPT_PROXY, ""),
            (CURLOPT_USERAGENT, "notify-center"),
        ]
        let context = Unmanaged.passUnretained(self).toOpaque()
        return numbers.allSatisfy { CCurl_setNumber(handle, $0, $1) == CURLE_OK }
            && texts.allSatisfy { CCurl_setText(handle, $0, $1) == CURLE_OK }
            && CCurl_setSize(handle, CURLOPT_MAXFILESIZE_LARGE, curl_off_t(limits.size)) == CURLE_OK
            && CCurl_setPointer(handle, CURLOPT_ERRORBUFFER, message) == CURLE_OK
            && CCurl_setPointer(handle, CURLOPT_WRITEDATA, context) == CURLE_OK
            && CCurl_setPointer(handle, CURLOPT_HEADERDATA, context) == CURLE_OK
            && CCurl_setDataFunction(handle, CURLOPT_WRITEFUNCTION, Self.takeBody) == CURLE_OK
            && CCurl_setDataFunction(handle, CURLOPT_HEADERFUNCTION, Self.takeHeader) == CURLE_OK
            && setTrust(handle, trustAnchors) && setContent(handle)
    }

    private func setTrust(_ handle: UnsafeMutableRawPointer, _ trustAnchors: String?) -> Bool {
        guard let trustAnchors else { return true }
        // Without this, libcurl would also trust the system's directory of authorities.
        return CCurl_setText(handle, CURLOPT_CAINFO, trustAnchors) == CURLE_OK
            && CCurl_setText(handle, CURLOPT_CAPATH, nil) == CURLE_OK
    }

    private func setContent(_ handle: UnsafeMutableRawPointer) -> Bool {
        // No `Expect`: libcurl would wait a second for the server's 100 response.
        var lines = ["Expect:"] + request.fields.map { "\($0): \($1)" }
        if case .post(let body, let contentType) = request.method {
            lines.append("Content-Type: \(contentType)")
            // The size must be set first: libcurl copies that number of bytes.
            let isSet =
                CCurl_setSize(handle, CURLOPT_POSTFIELDSIZE_LARGE, curl_off_t(body.count)) == CURLE_OK
                && body.withUnsafeBytes { bytes in
                    CCurl_setPointer(
                        handle,
                        CURLOPT_COPYPOSTFIELDS,
                        // libcurl only reads the memory; with no bytes it does not read at all.
                        UnsafeMutableRawPointer(mutating: bytes.baseAddress) ?? handle
                    ) == CURLE_OK
                }
            guard isSet else { return false }
        }
        for line in lines {
            guard let longer = curl_slist_append(headerLines, line) else { return false }
            headerLines = longer
        }
        return CCurl_setHeaders(handle, headerLines) == CURLE_OK
    }

    private static func milliseconds(_ duration: Duration) -> Int {
        let (seconds, attoseconds) = duration.components
        // Zero would mean no limit.
        return max(1, Int(min(seconds, 3600)) * 1000 + Int(attoseconds / 1_000_000_000_000_000))
    }

    // MARK: The response

    private static let takeBody: CCurl_dataFunction = { data, size, count, context in
        Transfer.from(context).take(data, size * count) { transfer, bytes in
            guard transfer.body.count + bytes.count <= transfer.request.limits.size else {
                return .tooLarge(transfer.request.limits.size)
            }
            transfer.body += bytes
            return nil
        }
    }

    private static let takeHeader: CCurl_dataFunction = { data, size, count, context in
        Transfer.from(context).take(data, size * count) { transfer, bytes in
            transfer.headerSize += bytes.count
            guard transfer.headerSize <= HTTPLimits.headerSize else { return .tooLarge(HTTPLimits.headerSize) }
            transfer.takeHeaderLine(String(decoding: bytes, as: UTF8.self))
            return nil
        }
    }

    /// The context is the transfer that `setUp` passed. The loop keeps it alive until libcurl has released the handle.
    private static func from(_ context: UnsafeMutableRawPointer?) -> Transfer {
        guard let context else { preconditionFailure("libcurl calls back with the context that it was given") }
        return Unmanaged<Transfer>.fromOpaque(context).takeUnretainedValue()
    }

    /// - Returns: The number of bytes for libcurl: all of them, or another number to end the transfer.
    private func take(
        _ data: UnsafeMutablePointer<CChar>?,
        _ count: Int,
        _ body: (Transfer, UnsafeRawBufferPointer) -> HTTPError.Reason?
    ) -> Int {
        refusal = body(self, UnsafeRawBufferPointer(start: data, count: count))
        // Any other number than `count` ends the transfer; for an empty chunk that is 1.
        return refusal == nil ? count : count == 0 ? 1 : 0
    }

    private func takeHeaderLine(_ line: String) {
        // A status line starts a new response, so the fields of an interim response such as 100 are dropped.
        if line.hasPrefix("HTTP/") {
            fields = [:]
            return
        }
        guard let colon = line.firstIndex(of: ":") else { return }
        let value = line[line.index(after: colon)...].unicodeScalars
            .filter { $0 != "\r" && $0 != "\n" }
            .drop { $0 == " " || $0 == "\t" }
        fields[line[..<colon].lowercased()] = String(String.UnicodeScalarView(value))
    }

    // MARK: Completion

    func complete(_ code: CURLcode) {
        if let refusal { return fail(refusal) }
        guard code == CURLE_OK else { return fail(reason(of: code)) }
        var status = 0
        guard let handle, CCurl_getNumber(handle, CURLINFO_RESPONSE_CODE, &status) == CURLE_OK else {
            return fail(.brokenOff("no status"))
        }
        guard !(300..<400).contains(status) else { return fail(.redirected) }
        if let coding = fields["content-encoding"], coding.lowercased() != "identity" {
            return fail(.encoded(coding.printable(32)))
        }
        completion(.success(HTTPResponse(status: status, fields: fields, body: body)))
    }

    func fail(_ reason: HTTPError.Reason) { completion(.failure(HTTPError(reason, attempted: "\(request)"))) }

    private func reason(of code: CURLcode) -> HTTPError.Reason {
        let words = message[0] != 0 ? String(cString: message) : String(cString: curl_easy_strerror(code))
        let text = words.printable(200)
        return switch code {
        case CURLE_OPERATION_TIMEDOUT: .timedOut
        case CURLE_FILESIZE_EXCEEDED: .tooLarge(request.limits.size)
        case CURLE_COULDNT_RESOLVE_HOST, CURLE_COULDNT_CONNECT, CURLE_INTERFACE_FAILED: .unreachable(text)
        case CURLE_SSL_CONNECT_ERROR, CURLE_PEER_FAILED_VERIFICATION, CURLE_SSL_CACERT_BADFILE, CURLE_SSL_CERTPROBLEM,
            CURLE_SSL_CIPHER, CURLE_SSL_ISSUER_ERROR, CURLE_SSL_INVALIDCERTSTATUS:
            .untrusted(text)
        default: .brokenOff(text)
        }
    }
}
