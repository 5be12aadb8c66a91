import Basics

/// The vocabulary of `com.microsoft.identity.Broker1`, as Microsoft's clients on Linux use it. Microsoft has not
/// documented it.
package enum BrokerContract {
    package static let busName = "com.microsoft.identity.broker1"
    package static let path = "/com/microsoft/identity/broker1"
    /// This program's app identifier at the device's broker.
    package static let application = "com.microsoft.identity.broker1"
    static let interface = "com.microsoft.identity.Broker1"
    /// The version reported to clients. From this version on, clients accept a list of cookies.
    static let version = "3.0.1"

    /// The limits of a request, far above what clients send.
    static let limits = JSONLimits(size: 64 * 1024, depth: 16, values: 4096)
    /// The most requests in flight.
    static let requests = 32
    /// The most requests in flight that wait for a user.
    static let interactiveRequests = 8
    /// The lifetime of a token for clients, in seconds. Clients cache a token that has five minutes or more to live and
    /// use it without a call, so a sign-out would go unnoticed.
    static let tokenLifetime = 240.0

    /// The methods. Each takes version, correlation ID and request, and returns one text.
    package enum Method: String, Sendable, CaseIterable {
        case getLinuxBrokerVersion, getAccounts, acquireTokenSilently, acquireTokenInteractively, acquirePrtSsoCookie
        case removeAccount, generateSignedHttpRequest, cancelInteractiveFlow
    }

    /// The error statuses that Microsoft's client library knows.
    enum Status: Int, Sendable {
        case unexpected = 0
        /// In an interactive call, the client continues by asking the user.
        case interactionRequired = 2
        case noNetwork = 3
        case apiContractViolation = 6
        case userCanceled = 7
        case applicationCanceled = 8
        case incorrectConfiguration = 9
        /// Handled by clients like `interactionRequired`.
        case accountUnusable = 13
        case userDataRemovalRequired = 14
        case transientError = 15
        case accountSwitch = 16
        case accountNotFound = 19
    }
}

/// A failed request: the client's status, and the reason, which the client logs.
struct BrokerFailure: Error, Sendable, Hashable {
    let status: BrokerContract.Status
    let context: String

    init(_ status: BrokerContract.Status, _ context: String) {
        self.status = status
        self.context = context
    }

    /// Clients reject a response as meaningless if one of these members is missing.
    private var json: JSONValue {
        .object([
            "error": .object([
                "context": .string(context), "status": .number(Double(status.rawValue)), "subStatus": .number(0),
                "errorCode": .number(0), "tag": .number(0),
            ])
        ])
    }

    /// The failure as the response of a method. Not a D-Bus error, because clients drop its text.
    func answer(to method: BrokerContract.Method) -> JSONValue {
        switch method {
        case .acquireTokenSilently, .acquireTokenInteractively: .object(["brokerTokenResponse": json])
        case .getLinuxBrokerVersion, .getAccounts, .acquirePrtSsoCookie, .removeAccount, .generateSignedHttpRequest,
            .cancelInteractiveFlow:
            json
        }
    }
}
