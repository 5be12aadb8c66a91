import Basics
import Cryptography
import HTTPClient
package import Identity

/// The credentials of this device at the provider.
package struct ClientCredentials: Sendable {
    package let identifier: String
    /// `nil` for a public client.
    package let secret: Secret?

    package init(identifier: String, secret: Secret? = nil) {
        self.identifier = identifier
        self.secret = secret
    }
}

/// The provider's metadata and this device's credentials: the basis of every request.
package struct ProviderClient: Sendable {
    package let metadata: ProviderMetadata
    let credentials: ClientCredentials

    var issuer: Issuer { metadata.issuer }

    /// A form with the client's name and secret (RFC 6749, section 2.3.1). The secret is in the header, or in the body
    /// if the provider accepts it only there.
    ///
    /// - Parameter namesClient: Whether the body always names the client. For a device code, Django OAuth Toolkit looks
    ///   for the client only there.
    func request(_ address: HTTPAddress, _ form: [(String, String)], namesClient: Bool = false) -> HTTPRequest {
        var form = form
        var fields = ["Accept": "application/json"]
        if let secret = credentials.secret, !metadata.takesSecretInBody {
            let pair = FormFields.encode(credentials.identifier) + ":" + FormFields.encode(secret.text)
            fields["Authorization"] = "Basic " + Self.base64(pair)
            if namesClient { form.append(("client_id", credentials.identifier)) }
        } else {
            form.append(("client_id", credentials.identifier))
            if let secret = credentials.secret { form.append(("client_secret", secret.text)) }
        }
        let body = Array(FormFields.encode(form).utf8)
        return HTTPRequest(address, .post(body, contentType: FormFields.contentType), fields: fields)
    }

    /// Base64 in the standard alphabet, with padding.
    private static func base64(_ text: String) -> String {
        let digits = Base64URL.encode(text.utf8).map { $0 == "-" ? "+" : $0 == "_" ? "/" : $0 }
        return String(digits) + String(repeating: "=", count: (4 - digits.count % 4) % 4)
    }
}
