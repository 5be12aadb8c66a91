import Basics
import Cryptography
import FoundationEssentials
import HTTPClient
import Identity

@testable import HTTPListening
@testable import OpenIDConnect

/// A JSON text, form fields and an address. An encoded value must decode to an equal value.
@Sendable func fuzzJSON(_ input: [UInt8]) {
    if let value = try? JSONValue(parsing: input, limits: JSONLimits(size: 1 << 16)) {
        let text = Array(value.text.utf8)
        precondition((try? JSONValue(parsing: text, limits: JSONLimits(size: 1 << 20))) == value)
    }
    let text = String(decoding: input, as: UTF8.self)
    if let fields = FormFields.decode(text) {
        precondition(FormFields.decode(FormFields.encode(fields.map { ($0.key, $0.value) })) == fields)
    }
    if let address = HTTPAddress(text) { _ = HTTPAddress(address.adding(query: [("a", "b")])) }
}

/// A request to the listener for logouts and for the sign-in page. The first byte is the position at which the request
/// is split: the result must not depend on it.
@Sendable func fuzzHTTPRequests(_ input: [UInt8]) {
    guard let first = input.first else { return }
    let request = Array(input.dropFirst())
    let cut = min(Int(first), request.count)
    var (whole, parts) = (RequestParser(), RequestParser())
    let progress = whole.take(request)
    var result = parts.take(request[..<cut])
    if result == .incomplete { result = parts.take(request[cut...]) }
    precondition(isSameResult(progress, result))
}

private func isSameResult(_ left: RequestParser.Progress, _ right: RequestParser.Progress) -> Bool {
    // If a request has two mistakes, each parser may report a different one.
    if case .refused = left, case .refused = right { return true }
    return left == right
}

private let issuer = Issuer("https://login.example.com")
private let key = SigningKey()
private let keys = try? JSONWebKeySet(parsing: Array(JSONValue.object(["keys": .array([key.publicKey])]).text.utf8))

/// A token in compact form, a key set, and claims that are signed here as ID token, logout token and security event.
@Sendable func fuzzTokens(_ input: [UInt8]) {
    let text = String(decoding: input, as: UTF8.self)
    if let token = try? CompactSignature(parsing: text) { _ = try? keys?.verify(token) }
    if let bytes = Base64URL.decode(input) { precondition(Array(Base64URL.encode(bytes).utf8) == input) }
    guard let json = try? JSONValue(parsing: input, limits: JSONLimits(size: 1 << 16, depth: 15)) else { return }
    _ = try? JSONWebKeySet(parsing: input)
    guard json.object != nil, let issuer else { return }
    _ = try? TokenAnswer(json, issuer: issuer)
    guard let type = json["type"]?.string, ["JWT", "logout+jwt", "secevent+jwt"].contains(type),
        let signed = try? key.sign(json, type: type), let token = try? CompactSignature(parsing: signed),
        let verified = try? keys?.verify(token)
    else { return }
    let now = Date(timeIntervalSince1970: 1_800_000_000)
    let expected = IDTokenExpectation(
        issuer: issuer,
        clientID: "app",
        nonce: .absent(or: "n"),
        accessToken: "a",
        requestedAt: now
    )
    _ = try? IDToken(verified, expected, now: now)
    _ = try? LogoutToken(verified, issuer: issuer, clientID: "app", now: now)
    _ = try? SecurityEventToken(verified, issuer: issuer, audience: "app", now: now)
}

/// A provider's metadata document.
@Sendable func fuzzProviderMetadata(_ input: [UInt8]) {
    guard let issuer else { return }
    let response = HTTPResponse(
        status: 200,
        fields: ["cache-control": String(decoding: input, as: UTF8.self)],
        body: input
    )
    _ = response.maximumAge
    guard let document = try? ProviderDocument(response, of: issuer) else { return }
    _ = document.isIncomplete
    _ = try? ProviderMetadata([document], issuer: issuer)
}
