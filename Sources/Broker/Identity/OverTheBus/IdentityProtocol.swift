public import DBus
public import DBusService

/// The D-Bus interface between the broker and the process that speaks to the organisation's provider:
/// `org.notifycenter.SharedDeviceIdentity1`. Its methods are those of `OrganisationProvider`. Requests and responses
/// are dictionaries, so that both sides can add members.
public enum IdentityProtocol {
    public static let busName = "org.notifycenter.SharedDeviceIdentity1"
    public static let path = "/org/notifycenter/SharedDeviceIdentity"
    public static let interface = "org.notifycenter.SharedDeviceIdentity1"
    /// The prefix of D-Bus errors that stand for an `IdentityError`; the rest of the name is its code.
    public static let errorPrefix = "org.notifycenter.SharedDeviceIdentity1.Error."
    /// How long the broker waits for a response.
    public static let patience: Duration = .seconds(60)
    /// The time limit of a call: shorter than ``patience``, so that the response arrives in time.
    public static let longestCall: Duration = .seconds(55)
    /// The largest body of a call, in bytes: a record and the members around it.
    public static let longestBody = ProviderRecord.longestContent + (32 << 10)
    /// The maximum number of calls that may be in flight.
    public static let mostCalls = 32

    /// For administrators: tests what the device needs of its provider.
    public static let checkMethod = "Check"

    public enum Method: String, Sendable, CaseIterable {
        case begin = "BeginSignIn"
        case complete = "CompleteSignIn"
        case poll = "PollSignIn"
        case cancel = "CancelSignIn"
        case renew = "Renew"
        case end = "EndSession"
    }
}

extension IdentityProtocol {
    /// The dictionary in the arguments of a call or a response; throws if there is none.
    public static func fields(of arguments: [DBusValue]) throws(IdentityError) -> IdentityFields {
        guard let fields = arguments.first?.fieldsValue else { throw .malformed("request") }
        return fields
    }
}

extension IdentityError {
    /// Turns the error into the D-Bus error of a call.
    public var failure: MethodFailure {
        MethodFailure(name: IdentityProtocol.errorPrefix + code.rawValue, message: description)
    }

    /// The D-Bus error of the process, or the reason why it did not respond.
    public init(_ error: DBusError) {
        guard let name = error.name, name.hasPrefix(IdentityProtocol.errorPrefix) else {
            self.init(
                .providerUnavailable,
                "the process that speaks to the organisation's provider does not respond (\(error)); see that "
                    + "shared-device-identity is installed and runs"
            )
            return
        }
        let word = String(name.dropFirst(IdentityProtocol.errorPrefix.count))
        self.init(Code(rawValue: word) ?? .providerFailed, error.message)
    }

    /// - Parameter field: The missing or malformed member of a request or response.
    public static func malformed(_ field: String) -> IdentityError {
        IdentityError(
            .providerFailed,
            "the broker and the identity process differ in version: “\(field)” is missing or malformed; install both again"
        )
    }

    /// A call exceeded its time limit.
    static let late = IdentityError(
        .providerUnavailable,
        "the provider has not responded within \(IdentityProtocol.longestCall.components.seconds) s; check the network, and try again"
    )
}
