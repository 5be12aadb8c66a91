import Basics

/// A client's request. Unknown members are ignored, because clients send many and add new ones.
struct ClientRequest: Sendable, Equatable {
    /// The client's identifier, in lower case.
    var client: String?
    /// The `homeAccountId` of the requested account; `nil` means the signed-in user.
    var account: String?
    /// The requested scopes, in the client's order.
    var scopes: [String] = []
    /// Whether the token must be bound to a key of the broker (proof of possession).
    var isBound = false
    /// Whether the client's token no longer works, so that a cached one must not be returned.
    var renewsToken = false
    /// The claims that the token must meet, as JSON: a resource's claims challenge.
    var claims: String?

    /// - Throws: `BrokerFailure` with `apiContractViolation` for any other text.
    init(_ text: String) throws(BrokerFailure) {
        let json: JSONValue
        do throws(JSONError) {
            json = try JSONValue(parsing: Array(text.utf8), limits: BrokerContract.limits)
        } catch {
            throw BrokerFailure(.apiContractViolation, "the request is not JSON: \(error)")
        }
        guard json.object != nil else { throw BrokerFailure(.apiContractViolation, "the request is no JSON object") }
        let parameters = try Self.object(json, "authParameters")
        // Some clients write next to the parameters what other clients write inside them.
        let (inner, outer) = (try Self.text(parameters, "clientId"), try Self.text(json, "clientId"))
        client = (inner ?? outer)?.lowercased()
        let accounts = (try Self.object(parameters, "account"), try Self.object(json, "account"))
        if let account = accounts.0 ?? accounts.1 {
            guard let identifier = try Self.text(account, "homeAccountId") else {
                throw BrokerFailure(.apiContractViolation, "“account” has no “homeAccountId”")
            }
            self.account = identifier
        }
        if let value = parameters?["requestedScopes"], value != .null {
            guard let scopes = value.strings else {
                throw BrokerFailure(.apiContractViolation, "“requestedScopes” is no array of strings")
            }
            self.scopes = scopes
        }
        isBound = try Self.object(parameters, "popParams") != nil
        renewsToken = try Self.text(parameters, "accessTokenToRenew") != nil
        if let claims = try Self.text(parameters, "decodedClaims"), try Self.demandsClaims(claims) {
            self.claims = claims
        }
    }

    /// Whether the claims ask for more than the client's capabilities (`xms_cc`), which many clients send with every
    /// request.
    private static func demandsClaims(_ text: String) throws(BrokerFailure) -> Bool {
        guard let json = try? JSONValue(parsing: Array(text.utf8), limits: BrokerContract.limits),
            let places = json.object
        else { throw BrokerFailure(.apiContractViolation, "“decodedClaims” has no JSON object") }
        return places.contains { place, claims in
            guard place == "access_token", let names = claims.object?.keys else { return true }
            return names.contains { $0 != "xms_cc" }
        }
    }

    /// A member; `nil` if it is absent or `null`.
    private static func object(_ json: JSONValue?, _ name: String) throws(BrokerFailure) -> JSONValue? {
        guard let value = json?[name], value != .null else { return nil }
        guard value.object != nil else { throw BrokerFailure(.apiContractViolation, "“\(name)” is no object") }
        return value
    }

    /// A member; `nil` if it is absent, `null` or empty. Clients use these interchangeably.
    private static func text(_ json: JSONValue?, _ name: String) throws(BrokerFailure) -> String? {
        guard let value = json?[name], value != .null else { return nil }
        guard let text = value.string else { throw BrokerFailure(.apiContractViolation, "“\(name)” is no string") }
        return text.isEmpty ? nil : text
    }
}
