import Basics
package import HTTPClient
package import Identity

/// The code for the person to type in on another device (RFC 8628, section 3.2).
package struct DeviceCode: Sendable, Hashable {
    package let userCode: String
    package let address: HTTPAddress
    /// The address with the code in it, for a QR code.
    package let completeAddress: HTTPAddress?
    /// How much time the person has.
    package let lifetime: Duration
}

/// A sign-in with a code on another device: the device authorization grant (RFC 8628). A state machine; the caller
/// sends the requests and waits.
package struct DeviceGrant: Sendable {
    /// The upper bound of the provider's `expires_in`.
    package static let longestLifetime: Duration = .seconds(900)
    /// Used if the provider sends no `expires_in`.
    static let usualLifetime: Duration = .seconds(300)
    /// How long the grant goes on without an `awaited` event.
    package static let patience: Duration = .seconds(30)
    static let usualInterval: Duration = .seconds(5)
    /// Added to the interval at every `slow_down`, permanently (RFC 8628, section 3.5).
    static let slowDown: Duration = .seconds(5)
    /// The upper bound of the interval when it is doubled after failures.
    static let longestInterval: Duration = .seconds(60)

    package enum Event: Sendable {
        case begin
        /// The outcome of `send`.
        case answered(Result<HTTPResponse, HTTPError>)
        case waited
        /// The caller polled for the outcome. The time is that of the poll.
        case awaited
        case cancelled
    }

    package enum Effect: Sendable {
        /// The outcome comes back as `answered`.
        case send(HTTPRequest)
        case show(DeviceCode)
        /// `waited` follows.
        case wait(Duration)
        case finished(Result<TokenAnswer, IdentityError>)
    }

    private enum Phase {
        case new
        case asking
        case waiting(code: String)
        case polling(code: String)
        case ended
    }

    private let client: ProviderClient
    private let scopes: [String]
    private var phase = Phase.new
    private var interval = usualInterval
    private var deadline: ContinuousClock.Instant
    private var awaitedAt: ContinuousClock.Instant

    package init(_ client: ProviderClient, scopes: [String], start: ContinuousClock.Instant) {
        self.client = client
        self.scopes = scopes
        deadline = start + Self.longestLifetime
        awaitedAt = start
    }

    /// The effects of an event, in this order. An event that does not fit the state, or follows `finished`, has none.
    package mutating func handle(_ event: Event, at now: ContinuousClock.Instant) -> [Effect] {
        do throws(IdentityError) {
            switch (phase, event) {
            case (.ended, _): return []
            case (_, .cancelled): throw .cancelled
            case (_, .awaited):
                awaitedAt = now
                return []
            case (.new, .begin): return [.send(try begin())]
            case (.asking, .answered(let result)): return try show(result, at: now)
            case (.waiting(let code), .waited):
                guard now < deadline, now - awaitedAt <= Self.patience else { throw .expired }
                phase = .polling(code: code)
                return [.send(poll(code))]
            case (.polling(let code), .answered(let result)): return try goOn(code, result)
            case (.new, _), (.asking, _), (.waiting, _), (.polling, _): return []
            }
        } catch {
            phase = .ended
            return [.finished(.failure(error))]
        }
    }

    // MARK: The code

    private mutating func begin() throws(IdentityError) -> HTTPRequest {
        guard let endpoint = client.metadata.deviceAuthorizationEndpoint else {
            throw .misconfigured(
                client.issuer,
                "names no device_authorization_endpoint; name it in oidcEndpoints, or use the browser"
            )
        }
        phase = .asking
        return client.request(endpoint, [("scope", scopes.joined(separator: " "))], namesClient: true)
    }

    private mutating func show(
        _ result: Result<HTTPResponse, HTTPError>,
        at now: ContinuousClock.Instant
    ) throws(IdentityError) -> [Effect] {
        let response = try result.mapError { IdentityError($0, client.issuer) }.get()
        let answer = EndpointAnswer(response)
        guard case .granted(let json) = answer else {
            throw answer.error("refuses a device code", response, client.issuer)
        }
        let (code, shown) = try Self.code(json, client.issuer)
        deadline = now + shown.lifetime
        if let seconds = Self.seconds(json["interval"]), seconds > 0 { interval = .seconds(max(1, min(seconds, 60))) }
        phase = .waiting(code: code)
        return [.show(shown), .wait(interval)]
    }

    /// Reads the provider's response (RFC 8628, section 3.2). Accepts common and safe variants: `verification_url`, a
    /// number as a string, and a missing `expires_in`, because the provider reports an expired code itself.
    ///
    /// - Throws: `IdentityError`: `providerMisconfigured`, with the member that is missing or wrong.
    static func code(_ json: JSONValue, _ issuer: Issuer) throws(IdentityError) -> (code: String, shown: DeviceCode) {
        func member(_ name: String) throws(IdentityError) -> String {
            guard let text = json[name]?.string, !text.isEmpty else {
                throw .unusable(issuer, JSONValue.flaw(json[name], "“\(name)”", "a text with characters"))
            }
            return text
        }
        let code = try member("device_code")
        let userCode = try member("user_code")
        guard userCode.utf8.count <= 64, userCode.utf8.allSatisfy({ $0 >= 0x20 && $0 < 0x7F }) else {
            throw .unusable(issuer, "“user_code” is not 1 to 64 characters of ASCII")
        }
        let name =
            json["verification_uri"] == nil && json["verification_url"] != nil ? "verification_url" : "verification_uri"
        guard let address = HTTPAddress(try member(name)) else {
            throw .unusable(issuer, "“\(name)” is no https address")
        }
        var lifetime = usualLifetime
        if let value = json["expires_in"], value != .null {
            guard let seconds = seconds(value), seconds > 0 else {
                throw .unusable(issuer, "“expires_in” is no time in seconds")
            }
            lifetime = min(.seconds(min(seconds, 900)), longestLifetime)
        }
        let complete = json["verification_uri_complete"]?.string.flatMap(HTTPAddress.init)
        let shown = DeviceCode(userCode: userCode, address: address, completeAddress: complete, lifetime: lifetime)
        return (code, shown)
    }

    private static func seconds(_ value: JSONValue?) -> Double? {
        value.flatMap { $0.number ?? $0.string.flatMap(Double.init) }.flatMap { $0.isFinite ? $0 : nil }
    }

    // MARK: Polling

    private func poll(_ code: String) -> HTTPRequest {
        client.request(
            client.metadata.tokenEndpoint,
            [("grant_type", "urn:ietf:params:oauth:grant-type:device_code"), ("device_code", code)],
            namesClient: true
        )
    }

    private mutating func goOn(
        _ code: String,
        _ result: Result<HTTPResponse, HTTPError>
    ) throws(IdentityError) -> [Effect] {
        var pause: Duration?
        switch result {
        case .failure(let error):
            guard error.isTemporary, error.reason != .cancelled else { throw IdentityError(error, client.issuer) }
            interval = max(interval, min(interval * 2, Self.longestInterval))
        case .success(let response):
            switch EndpointAnswer(response) {
            case .granted(let json):
                phase = .ended
                return [.finished(.success(try TokenAnswer(json, issuer: client.issuer)))]
            case .error("authorization_pending", _): break
            case .error("slow_down", _): interval += Self.slowDown
            // `authorization_declined` is Entra's word for `access_denied`.
            case .error("access_denied", _), .error("authorization_declined", _): throw .cancelled
            case .error("expired_token", _): throw .expired
            case .error("invalid_grant", _), .empty: throw .anotherSignIn
            case .unusable:
                interval = max(interval, min(interval * 2, Self.longestInterval))
                pause = response.retryAfter
            case let answer: throw answer.error("refuses the device code", response, client.issuer)
            }
        }
        phase = .waiting(code: code)
        return [.wait(max(interval, pause ?? .zero))]
    }
}
