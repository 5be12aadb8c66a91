public import Foundation

/// The claims that an app requests from a token service, in the form of OpenID Connect's `claims` parameter. Not
/// thread-safe, as in MSAL.
///
/// An interactive request passes the claims on to the organisation's provider, whose page asks the person again if one
/// is signed in. A silent request that demands claims fails with ``MSALError/interactionRequired``. The device's own
/// directory meets no claims: the interactive request fails there. The access token's claim `xms_cc`, which only names
/// the app's capabilities, demands nothing and changes nothing.
public final class MSALClaimsRequest {
    private var requests: [MSALClaimsRequestTarget: [MSALIndividualClaimRequest]] = [:]

    /// Creates a request without claims.
    public init() {}

    /// Parses a claims request, such as a resource's claims challenge.
    ///
    /// - Throws: an error with ``MSALInternalError/internalErrorInvalidParameter`` unless the text is a JSON object of
    ///   objects, and each claim is an object or `null`.
    public init(jsonString: String) throws {
        let places = try ClaimsJSON.object(jsonString)
        for target in MSALClaimsRequestTarget.allCases {
            guard let value = places[target.place], !(value is NSNull) else { continue }
            guard let claims = value as? [String: Any] else {
                throw ClaimsJSON.invalid("“\(target.place)” is no object")
            }
            requests[target] = try claims.sorted { $0.key < $1.key }.map { name, value in
                let request = MSALIndividualClaimRequest(name: name)
                if !(value is NSNull) {
                    request.additionalInfo = try MSALIndividualClaimRequestAdditionalInfo(value, of: name)
                }
                return request
            }
        }
    }

    /// Adds a claim, and replaces a claim of the same name.
    ///
    /// - Throws: an error with ``MSALInternalError/internalErrorInvalidParameter`` if the claim has no name.
    public func requestClaim(_ request: MSALIndividualClaimRequest, for target: MSALClaimsRequestTarget) throws {
        guard !request.name.isEmpty else { throw ClaimsJSON.invalid("the claim has no name") }
        requests[target, default: []].removeAll { $0.name == request.name }
        requests[target, default: []].append(request)
    }

    /// Returns the claims that are requested for this token.
    public func claimRequests(for target: MSALClaimsRequestTarget) -> [MSALIndividualClaimRequest] {
        requests[target] ?? []
    }

    /// Removes a claim.
    ///
    /// - Throws: an error with ``MSALInternalError/internalErrorInvalidParameter`` if the claim is not in the request.
    public func removeClaimRequest(withName name: String, target: MSALClaimsRequestTarget) throws {
        guard let index = requests[target]?.firstIndex(where: { $0.name == name }) else {
            throw ClaimsJSON.invalid("“\(name)” is not in the request")
        }
        requests[target]?.remove(at: index)
    }

    /// Returns the request as JSON, or `nil` if a claim's values cannot be represented in JSON.
    public func jsonString() -> String? {
        var places: [String: Any] = [:]
        for (target, claims) in requests where !claims.isEmpty {
            var members: [String: Any] = [:]
            for claim in claims {
                members[claim.name] = claim.additionalInfo.map { $0.json as Any } ?? NSNull()
            }
            places[target.place] = members
        }
        return ClaimsJSON.text(places)
    }

    /// Whether a token without these claims would be useless to the app.
    var isDemand: Bool {
        requests.contains { target, claims in
            claims.contains { target == .idToken || $0.name != "xms_cc" }
        }
    }
}

/// The token that is to contain a claim.
public enum MSALClaimsRequestTarget: UInt, Sendable, CaseIterable {
    /// The ID token.
    case idToken = 0
    /// The access token.
    case accessToken

    fileprivate var place: String {
        switch self {
        case .idToken: "id_token"
        case .accessToken: "access_token"
        }
    }
}

/// A request for one claim.
public final class MSALIndividualClaimRequest {
    /// The claim's name.
    public var name: String
    /// The values that the claim may have; `nil` means any.
    public var additionalInfo: MSALIndividualClaimRequestAdditionalInfo?

    /// Creates a request for the claim of this name.
    public init(name: String) { self.name = name }
}

/// The values that a claim may have.
public final class MSALIndividualClaimRequestAdditionalInfo {
    /// Whether the app needs the claim: a boolean, or `nil`.
    public var essential: NSNumber?
    /// The value that the claim must have.
    public var value: Any?
    /// The values of which the claim must have one, in order of preference.
    public var values: [Any]?

    /// Creates an unrestricted value.
    public init() {}

    fileprivate init(_ json: Any, of name: String) throws {
        guard let members = json as? [String: Any] else { throw ClaimsJSON.invalid("“\(name)” is no object") }
        essential = members["essential"] as? NSNumber
        value = members["value"]
        values = members["values"] as? [Any]
    }

    /// Returns the values as JSON, or `nil` if one of them cannot be represented in JSON.
    public func jsonString() -> String? { ClaimsJSON.text(json) }

    fileprivate var json: [String: Any] {
        var members: [String: Any] = [:]
        members["essential"] = essential?.boolValue
        members["value"] = value
        members["values"] = values
        return members
    }
}

private enum ClaimsJSON {
    static func object(_ text: String) throws -> [String: Any] {
        guard let json = try? JSONSerialization.jsonObject(with: Data(text.utf8)), let object = json as? [String: Any]
        else {
            throw invalid("the text is no JSON object")
        }
        return object
    }

    static func text(_ object: [String: Any]) -> String? {
        guard JSONSerialization.isValidJSONObject(object),
            let data = try? JSONSerialization.data(
                withJSONObject: object,
                options: [.sortedKeys, .withoutEscapingSlashes]
            )
        else { return nil }
        return String(decoding: data, as: UTF8.self)
    }

    static func invalid(_ reason: String) -> NSError {
        NSError.invalidParameter("could not make a claims request: \(reason)")
    }
}
