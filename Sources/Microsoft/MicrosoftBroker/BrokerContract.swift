import StrictJSON

/// The words of `com.microsoft.identity.Broker1`, as Microsoft's clients on Linux use them. Microsoft describes them nowhere.
package enum BrokerContract {
    package static let busName = "com.microsoft.identity.broker1"
    package static let path = "/com/microsoft/identity/broker1"
    /// The app that this program is to the device's broker.
    package static let application = "com.microsoft.identity.broker1"
    static let interface = "com.microsoft.identity.Broker1"
    /// The version that clients are told: from this one on they take a list of cookies.
    static let version = "3.0.1"

    /// What a request may have. Far more than any client writes.
    static let limits = JSONLimits(size: 64 * 1024, depth: 16, values: 4096)
    /// How many requests are under way at a time.
    static let requests = 32
    /// How many of them wait for a person.
    static let interactiveRequests = 8
    /// For how long a token is handed out, in seconds. Clients keep one with five minutes or more to live, and use it without a question: a
    /// sign-out would go unnoticed.
    static let tokenLifetime = 240.0

    /// The methods: version, correlation id and request go in, one text comes out.
    package enum Method: String, Sendable, CaseIterable {
        case getLinuxBrokerVersion, getAccounts, acquireTokenSilently, acquireTokenInteractively, acquirePrtSsoCookie
        case removeAccount, generateSignedHttpRequest, cancelInteractiveFlow
    }

    /// Why a request fails, by the numbers that the clients' library knows.
    enum Status: Int, Sendable {
        case unexpected = 0
        /// In an interactive call the client goes on to ask the person.
        case interactionRequired = 2
        case noNetwork = 3
        case apiContractViolation = 6
        case userCanceled = 7
        case applicationCanceled = 8
        case incorrectConfiguration = 9
        /// As `interactionRequired`.
        case accountUnusable = 13
        case userDataRemovalRequired = 14
        case transientError = 15
        case accountSwitch = 16
        case accountNotFound = 19
    }
}

/// Why a request fails: the client's number for it, and the reason, which the client logs.
struct BrokerFailure: Error, Sendable, Hashable {
    let status: BrokerContract.Status
    let context: String

    init(_ status: BrokerContract.Status, _ context: String) {
        self.status = status
        self.context = context
    }

    /// Without one of these members the client reports that the answer has no meaning.
    private var json: JSONValue {
        .object([
            "error": .object([
                "context": .string(context), "status": .number(Double(status.rawValue)), "subStatus": .number(0),
                "errorCode": .number(0), "tag": .number(0),
            ])
        ])
    }

    /// As the answer of a method. It is never a D-Bus error, of which clients drop the text.
    func answer(to method: BrokerContract.Method) -> JSONValue {
        switch method {
        case .acquireTokenSilently, .acquireTokenInteractively: .object(["brokerTokenResponse": json])
        case .getLinuxBrokerVersion, .getAccounts, .acquirePrtSsoCookie, .removeAccount, .generateSignedHttpRequest,
            .cancelInteractiveFlow:
            json
        }
    }
}
