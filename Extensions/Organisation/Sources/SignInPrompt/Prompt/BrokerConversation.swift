package import DBus
import FoundationEssentials
import Identity
@_spi(Extensions) package import SharedDevice

/// The prompt's calls to the broker. The prompt gets neither account nor token; the calling app requests these itself.
package struct BrokerConversation: Sendable {
    private let broker: BrokerAdministration

    /// The timeout of a call in which a provider checks the user's input.
    private static let patience = Duration.seconds(60)
    /// The longest wait of one call for the other device.
    private static let wait = Duration.seconds(25)
    /// The timeout of a cancellation. The end of the connection also cancels the sign-in.
    private static let cancelPatience = Duration.seconds(2)

    /// - Throws: ``SharedDeviceError/Code/brokerUnavailable`` if there is no such bus.
    package init(bus: Bus) throws(SharedDeviceError) { broker = try BrokerAdministration(bus: bus) }

    /// Creates a watch for the end of the broker, active from its `start()` until it is released.
    func watch(gone: @escaping @Sendable () -> Void) -> NameOwner {
        NameOwner(of: BrokerProtocol.busName, on: broker.connection) { if $0 == nil { gone() } }
    }

    /// The ports to which the provider redirects; empty means any.
    func loopbackPorts() async throws(SharedDeviceError) -> [UInt16] {
        let fields = try await broker.call(.getDeviceInformation, nil, attempted: "ask the broker for its ports")
        return (fields["loopbackPorts"]?.elementsValue ?? []).compactMap {
            $0.unsignedValue.flatMap(UInt16.init(exactly:))
        }
    }

    /// - Parameter patience: how long to wait for the cleanups of earlier sessions.
    func begin(
        _ wishes: SignInPrompt.Wishes,
        redirect: String?,
        patience: Duration
    ) async throws(SharedDeviceError) -> OpenRequest {
        var request = Self.request()
        request["wait"] = .double(patience / .seconds(1))
        request["methods"] = .array(wishes.methods.map { .string($0.rawValue) }, of: "s")
        request["redirectURI"] = redirect.map(DBusValue.string)
        request["loginHint"] = wishes.loginHint.map(DBusValue.string)
        if wishes.asksAgain { request["again"] = .boolean(true) }
        request["claims"] = wishes.claims.map(DBusValue.string)
        request["app"] = wishes.app.map(DBusValue.string)
        if !wishes.scopes.isEmpty { request["scopes"] = .array(wishes.scopes.map(DBusValue.string), of: "s") }
        let fields = try await broker.call(
            .beginSignIn,
            request,
            attempted: "begin a sign-in",
            timeout: Self.patience + patience
        )
        return try Self.understood("begin a sign-in") { () throws(BrokerProtocol.Malformed) in
            try OpenRequest(fields, now: Date().timeIntervalSince1970)
        }
    }

    func complete(_ open: OpenRequest, _ answer: SignInPrompt.Answer) async throws(SharedDeviceError) -> SignedIn {
        var request = Self.request(open)
        switch answer {
        case .query(let query): request["query"] = .string(query)
        case .credentials(let credentials): request.merge(credentials.fields) { $1 }
        }
        let fields = try await broker.call(.completeSignIn, request, attempted: "sign in", timeout: Self.patience)
        return try Self.understood("sign in") { () throws(BrokerProtocol.Malformed) in try SignedIn(fields) }
    }

    /// - Returns: `nil` while the user has not finished.
    func awaitPerson(_ open: OpenRequest) async throws(SharedDeviceError) -> SignedIn? {
        var request = Self.request(open)
        request["wait"] = .double(Self.wait / .seconds(1))
        let begin = ContinuousClock.now
        let fields = try await broker.call(
            .awaitSignIn,
            request,
            attempted: "sign in",
            timeout: Self.wait + Self.patience
        )
        if fields["pending"]?.booleanValue == true {
            // Limits the rate of calls to a broker that responds at once.
            let pause = if case .double(let interval)? = fields["interval"], interval.isFinite { interval } else { 5.0 }
            try? await Task.sleep(until: begin + .seconds(min(max(pause, 1), 60)))
            return nil
        }
        return try Self.understood("sign in") { () throws(BrokerProtocol.Malformed) in try SignedIn(fields) }
    }

    /// Ignores a failure, because the broker also ends the request with the connection.
    func cancel(_ open: OpenRequest) async {
        let (request, attempted) = (Self.request(open), "cancel the sign-in")
        _ = try? await broker.call(.cancelSignIn, request, attempted: attempted, timeout: Self.cancelPatience)
    }

    /// - Parameter open: The sign-in that the request is about; `nil` for a new one.
    private static func request(_ open: OpenRequest? = nil) -> BrokerProtocol.Fields {
        var request: BrokerProtocol.Fields = ["application": .string(BrokerProtocol.promptIdentifier)]
        request["request"] = open.map { .string($0.name) }
        return request
    }

    private static func understood<Value>(
        _ attempted: String,
        _ body: () throws(BrokerProtocol.Malformed) -> Value
    ) throws(SharedDeviceError) -> Value {
        do throws(BrokerProtocol.Malformed) {
            return try body()
        } catch {
            throw SharedDeviceError(
                .brokerFailed,
                attempted: attempted,
                message: "the broker's response lacks “\(error.field)”; use a broker and a prompt of the same version"
            )
        }
    }
}

extension SignInPrompt.Credentials {
    fileprivate var fields: BrokerProtocol.Fields {
        switch self {
        case .password(let username, let password):
            PersonalCredentials.password(username: username, password: password?.text ?? "").fields
        case .badge(let number, let pin): PersonalCredentials.badge(number: number.text, pin: pin.text).fields
        case .pin(let username, let pin): PersonalCredentials.pin(username: username, pin: pin.text).fields
        }
    }
}
