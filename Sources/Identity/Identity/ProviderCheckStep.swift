/// One of the things that a device needs of the organisation's provider, and what was found when it was tried without a person.
package struct ProviderCheckStep: Sendable, Hashable {
    /// In the order in which they are tried. The raw values are in JSON.
    package enum Name: String, Sendable, CaseIterable {
        /// The server proves who it is.
        case tls
        /// The provider describes itself, under the name that is configured.
        case discovery
        /// Its keys can be read.
        case keys
        /// It takes the address that the browser comes back to.
        case redirect
        /// It issues device codes.
        case deviceCode
        /// It knows this client, by its secret where it has one.
        case client
        /// It renews tokens.
        case refresh
        /// It revokes tokens.
        case revocation
        /// It ends its own session. Which one, only a session would show: the page alone is tried.
        case endSession
        /// Its word that a session has ended is heard; looked at where the configuration says where it arrives.
        case backChannelLogout
        /// Its events are to be had; tried where the configuration names a stream of them.
        case sharedSignals

        /// Those that every provider is asked for.
        package static let ofEveryProvider = allCases.filter { ![.backChannelLogout, .sharedSignals].contains($0) }
    }

    /// The raw values are in JSON.
    package enum Outcome: String, Sendable {
        case works
        case fails
        /// The provider does not offer it, or it cannot be seen without a person. No mistake.
        case unknown
    }

    package let name: Name
    package let outcome: Outcome
    /// What was found; for a failure also what helps.
    package let text: String

    package init(_ name: Name, _ outcome: Outcome, _ text: String) {
        self.name = name
        self.outcome = outcome
        self.text = text
    }
}
