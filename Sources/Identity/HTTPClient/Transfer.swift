import CCurl
import DBusTransport
import StrictJSON

/// One request and its answer, as libcurl carries it out.
///
/// Unchecked: it is made by one thread and then handed to the loop's, which alone touches it.
final class Transfer: @unchecked Sendable {
    let identifier: UInt64
    /// libcurl's; `nil` where it has no memory, or no way to keep to what is asked of it.
    private(set) var handle: UnsafeMutableRawPointer?
    private let request: HTTPRequest
    private let completion: (Result<HTTPResponse, HTTPError>) -> Void
    private var fields: [String: String] = [:]
    private var headerSize = 0
    private var body: [UInt8] = []
    /// Why this side ended it.
    private var refusal: HTTPError.Reason?
    private var headerLines: UnsafeMutablePointer<curl_slist>?
    /// Where libcurl writes what went wrong.
    private let message = UnsafeMutablePointer<CChar>.allocate(capacity: Int(CURL_ERROR_SIZE))

    /// - Parameter completion: is called once, on the loop's thread.
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

    /// - Returns: whether libcurl keeps to all of it. Otherwise nothing is sent.
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
            // Otherwise the end of a transfer waits for a name server that does not answer.
            (CURLOPT_QUICK_EXIT, 1),
            // On a connection that was used before, libcurl sends a request again whose connection ends before the answer begins. A code and a
            // refresh token may be used once.
            (CURLOPT_FRESH_CONNECT, request.method.isRepeatable ? 0 : 1),
        ]
        let texts: [(CURLoption, String)] = [
            (CURLOPT_URL, request.address.text),
            (CURLOPT_PROTOCOLS_STR, request.address.isSecure ? "https" : "http"),
            // None, whatever the environment says.
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
        // The system's directory of authorities, which libcurl would read as well, is left out.
        return CCurl_setText(handle, CURLOPT_CAINFO, trustAnchors) == CURLE_OK
            && CCurl_setText(handle, CURLOPT_CAPATH, nil) == CURLE_OK
    }

    private func setContent(_ handle: UnsafeMutableRawPointer) -> Bool {
        // Without `Expect`, for which libcurl would wait a second.
        var lines = ["Expect:"] + request.fields.map { "\($0): \($1)" }
        if case .post(let body, let contentType) = request.method {
            lines.append("Content-Type: \(contentType)")
            // libcurl copies as many bytes as the size says that it has been told before.
            let isSet =
                CCurl_setSize(handle, CURLOPT_POSTFIELDSIZE_LARGE, curl_off_t(body.count)) == CURLE_OK
                && body.withUnsafeBytes { bytes in
                    CCurl_setPointer(
                        handle,
                        CURLOPT_COPYPOSTFIELDS,
                        // libcurl only reads there; with no bytes, from anywhere.
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

    // MARK: The answer

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

    /// The context is the transfer that `setUp` named: the loop keeps it until libcurl has let go of its handle.
    private static func from(_ context: UnsafeMutableRawPointer?) -> Transfer {
        guard let context else { preconditionFailure("libcurl calls back with the context that it was given") }
        return Unmanaged<Transfer>.fromOpaque(context).takeUnretainedValue()
    }

    /// - Returns: what libcurl wants to hear: how many bytes were taken, all or none.
    private func take(
        _ data: UnsafeMutablePointer<CChar>?,
        _ count: Int,
        _ body: (Transfer, UnsafeRawBufferPointer) -> HTTPError.Reason?
    ) -> Int {
        refusal = body(self, UnsafeRawBufferPointer(start: data, count: count))
        // Fewer bytes than there are end the transfer; of none there is not one fewer.
        return refusal == nil ? count : count == 0 ? 1 : 0
    }

    private func takeHeaderLine(_ line: String) {
        // Of an answer that another one follows, such as 100, nothing counts.
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

    // MARK: The end

    /// Tells what came of it, when libcurl has ended.
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

    /// Tells that nothing came of it.
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
