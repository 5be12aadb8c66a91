package import DBusTransport
package import Identity

/// What the broker and the process that speaks to the organisation's provider say to each other: the D-Bus service
/// `org.notifycenter.SharedDeviceIdentity1`. Its methods are those of `OrganisationProvider`, from dictionary to dictionary, so that both sides can grow.
package enum IdentityProtocol {
    package static let busName = "org.notifycenter.SharedDeviceIdentity1"
    package static let path = "/org/notifycenter/SharedDeviceIdentity"
    package static let interface = "org.notifycenter.SharedDeviceIdentity1"
    /// A D-Bus error whose name begins so ends in the code of an `IdentityError`.
    package static let errorPrefix = "org.notifycenter.SharedDeviceIdentity1.Error."
    /// How long the broker waits for an answer.
    package static let patience: Duration = .seconds(60)
    /// How long a call may take, so that its answer is there before the broker has given up.
    package static let longestCall: Duration = .seconds(55)
    /// In bytes, of a call: a record, and what stands around it.
    package static let longestBody = ProviderRecord.longestContent + (32 << 10)
    /// How many calls may be under way.
    package static let mostCalls = 32

    /// For administrators: tries what the device needs of its provider.
    package static let checkMethod = "Check"

    package enum Method: String, Sendable, CaseIterable {
        case begin = "BeginSignIn"
        case complete = "CompleteSignIn"
        case poll = "PollSignIn"
        case cancel = "CancelSignIn"
        case renew = "Renew"
        case end = "EndSession"
    }
}

extension IdentityError {
    /// As a refusal of a call.
    package var failure: MethodFailure {
        MethodFailure(name: IdentityProtocol.errorPrefix + code.rawValue, message: description)
    }

    /// A refusal of the process, or the reason why it did not answer.
    package init(_ error: DBusError) {
        guard let name = error.name, name.hasPrefix(IdentityProtocol.errorPrefix) else {
            self.init(
                .providerUnavailable,
                "the process that speaks to the organisation's provider does not answer (\(error)); see that "
                    + "shared-device-identity is installed and runs"
            )
            return
        }
        let word = String(name.dropFirst(IdentityProtocol.errorPrefix.count))
        self.init(Code(rawValue: word) ?? .providerFailed, error.message)
    }

    /// - Parameter field: what an answer or a request lacks.
    package static func malformed(_ field: String) -> IdentityError {
        IdentityError(
            .providerFailed,
            "broker and identity process are not of one version: “\(field)” is missing, or is something else; install both anew"
        )
    }

    /// A call had to end.
    static let late = IdentityError(
        .providerUnavailable,
        "the provider has not answered within \(IdentityProtocol.longestCall.components.seconds) s; check the network, and try again"
    )
}
