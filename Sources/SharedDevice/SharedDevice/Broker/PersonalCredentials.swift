import DBus
import FoundationEssentials

/// The input with which a person of the device's own directory signs in.
@_spi(Extensions) public enum PersonalCredentials: Sendable {
    case password(username: String, password: String)
    /// The number that a badge reader has read, and the PIN of the badge's owner.
    case badge(number: String, pin: String)
    /// The PIN of the person whose session is locked. The broker refuses it at any other time.
    case pin(username: String, pin: String)

    /// The fields of a request to sign in.
    @_spi(Extensions) public var fields: BrokerProtocol.Fields {
        switch self {
        case .password(let username, let password): ["username": .string(username), "password": .string(password)]
        case .badge(let number, let pin): ["badge": .string(number), "pin": .string(pin)]
        case .pin(let username, let pin): ["username": .string(username), "pin": .string(pin)]
        }
    }
}

/// The signed-in person, as far as a program learns that gets neither account nor token.
@_spi(Extensions) public struct SignedIn: Sendable, Hashable {
    @_spi(Extensions) public let username: String
    @_spi(Extensions) public let epoch: UInt64

    @_spi(Extensions) public init(username: String, epoch: UInt64) { (self.username, self.epoch) = (username, epoch) }

    @_spi(Extensions) public init(_ fields: BrokerProtocol.Fields) throws(BrokerProtocol.Malformed) {
        guard let username = fields["username"]?.stringValue else { throw BrokerProtocol.Malformed("username") }
        guard let epoch = fields["epoch"]?.unsignedValue else { throw BrokerProtocol.Malformed("epoch") }
        self.init(username: username, epoch: epoch)
    }
}

extension BrokerAdministration {
    /// Signs a person in, for a program that gets neither account nor token. A person whose session is locked returns
    /// to it. The broker gives up the sign-in when the response comes too late.
    ///
    /// - Parameters:
    ///   - application: The program's identifier.
    ///   - wait: How long the sign-in may wait for the cleanups of earlier sessions.
    /// - Throws: `authenticationFailed` for a wrong PIN or password, and for an unknown badge; `tooManyAttempts`, whose
    ///   message says how long to wait.
    @_spi(Extensions) public func signIn(
        _ credentials: PersonalCredentials,
        as application: String,
        wait: Duration = .seconds(15)
    ) async throws(SharedDeviceError) -> SignedIn {
        let attempted = "sign in"
        var request = credentials.fields
        request["application"] = .string(application)
        request["wait"] = .double(wait / .seconds(1))
        let fields = try await call(.signIn, request, attempted: attempted, timeout: .seconds(25) + wait)
        return try BrokerProtocol.decoded(attempted) { () throws(BrokerProtocol.Malformed) in try SignedIn(fields) }
    }
}
