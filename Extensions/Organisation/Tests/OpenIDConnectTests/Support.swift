import Basics
import Cryptography
import FoundationEssentials
import HTTPClient
import Identity
import TestProviders

@testable import OpenIDConnect

let testIssuer = Issuer("https://login.example.com/realm")

/// A provider with all required metadata, for flows whose requests are not sent.
func provider(_ more: String = "", issuer: Issuer? = testIssuer, secret: String? = nil) throws -> ProviderClient {
    guard let issuer else { throw NoAddress() }
    let address = issuer.text
    let text = #"""
        {"issuer":"\#(address)","authorization_endpoint":"\#(address)/authorize","token_endpoint":"\#(address)/token",
        "jwks_uri":"\#(address)/keys","device_authorization_endpoint":"\#(address)/device"\#(more)}
        """#
    let document = try ProviderDocument(json(text), of: issuer)
    return ProviderClient(
        metadata: try ProviderMetadata([document], issuer: issuer),
        credentials: ClientCredentials(identifier: "device-7", secret: secret.map { Secret($0) })
    )
}

func json(_ text: String, status: Int = 200, fields: [String: String] = [:]) -> HTTPResponse {
    HTTPResponse(status: status, fields: fields, body: Array(text.utf8))
}

func oauthError(_ word: String, status: Int = 400) -> Result<HTTPResponse, HTTPError> {
    .success(json(#"{"error":"\#(word)"}"#, status: status))
}

/// Keys of which none is the token's.
struct UnknownKey {
    let token: CompactSignature
    let keys: JSONWebKeySet
    let verdict = KeyCache.Verdict.refused(.unknownKey(.es256, identifier: "1"))

    init() throws {
        let header = Base64URL.encode(#"{"alg":"ES256","kid":"1"}"#.utf8)
        token = try CompactSignature(parsing: "\(header).e30.AAAA")
        keys = try JSONWebKeySet(parsing: Array(#"{"keys":[]}"#.utf8))
    }
}

let tokens = json(#"{"access_token":"a","token_type":"bearer","expires_in":60,"refresh_token":"r2"}"#)

func failure(_ reason: HTTPError.Reason) -> Result<HTTPResponse, HTTPError> {
    .failure(HTTPError(reason, attempted: "POST https://login.example.com/token"))
}

/// The fields of a form.
func form(_ request: HTTPRequest) -> [String: String] {
    guard case .post(let body, _) = request.method else { return [:] }
    return FormFields.decode(String(decoding: body, as: UTF8.self)) ?? [:]
}

/// Signs and verifies claims, to make a verified token.
func verified(_ claims: String, type: String? = nil) throws -> VerifiedToken {
    let key = P256PrivateKey()
    let point = key.publicPoint
    let header = #"{"alg":"ES256"\#(type.map { #","typ":"\#($0)""# } ?? "")}"#
    let signed = Base64URL.encode(header.utf8) + "." + Base64URL.encode(claims.utf8)
    let signature = try key.signature(of: Array(signed.utf8))
    let keys = try JSONWebKeySet(
        parsing: Array(
            #"{"keys":[{"kty":"EC","crv":"P-256","x":"\#(Base64URL.encode(point[..<32]))","y":"\#(Base64URL.encode(point[32...]))"}]}"#
                .utf8
        )
    )
    return try keys.verify(CompactSignature(parsing: signed + "." + Base64URL.encode(signature)))
}
