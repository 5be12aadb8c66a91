import DBus

/// One requirement that the device has of the organisation's provider, and the result of a test that needs no person.
/// The properties' names are in JSON.
public struct ProviderCheckStep: Sendable, Hashable, Encodable {
    /// In the order of the tests. The raw values are in JSON.
    public enum Name: String, Sendable, CaseIterable, Encodable {
        /// The server's certificate is valid.
        case tls
        /// The provider's metadata can be read, and names the configured issuer.
        case discovery
        /// The provider's keys can be read.
        case keys
        /// The provider accepts the redirect address.
        case redirect
        case deviceCode
        /// The provider knows this client, and its secret if it has one.
        case client
        case refresh
        case revocation
        /// The provider has a page that ends its own session. The test ends no session, because it has none.
        case endSession
        /// Logout tokens can arrive. Tested only if the configuration has an address for them.
        case backChannelLogout
        /// The provider's events can be polled. Tested only if the configuration names a stream.
        case sharedSignals

        /// The steps that apply to every provider.
        public static let ofEveryProvider = allCases.filter { ![.backChannelLogout, .sharedSignals].contains($0) }
    }

    /// The raw values are in JSON.
    public enum Outcome: String, Sendable, Encodable {
        case works
        case fails
        /// The provider does not offer it, or a test needs a person. Not an error.
        case unknown
    }

    public let name: Name
    public let outcome: Outcome
    /// The result; after a failure also the remedy.
    public let text: String

    public init(_ name: Name, _ outcome: Outcome, _ text: String) {
        (self.name, self.outcome, self.text) = (name, outcome, text)
    }
}

// MARK: Over the bus

extension ProviderCheckStep {
    /// The steps as the response to ``IdentityProtocol/checkMethod``.
    public static func fields(_ steps: [ProviderCheckStep]) -> IdentityFields {
        let elements = steps.map { step in
            DBusValue.fields([
                "name": .string(step.name.rawValue), "outcome": .string(step.outcome.rawValue),
                "text": .string(step.text),
            ])
        }
        return ["steps": .array(elements, of: "a{sv}")]
    }

    /// - Throws: `IdentityError` if the response is malformed.
    public static func steps(_ fields: IdentityFields) throws(IdentityError) -> [ProviderCheckStep] {
        guard let elements = fields["steps"]?.elementsValue else { throw .malformed("steps") }
        return try elements.map { element throws(IdentityError) in
            guard let step = element.fieldsValue else { throw .malformed("steps") }
            return ProviderCheckStep(try step.word("name"), try step.word("outcome"), try step.text("text"))
        }
    }
}
