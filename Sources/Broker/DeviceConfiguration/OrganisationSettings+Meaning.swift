import Identity

extension OrganisationSettings {
    /// The meaning of a key for this device in a sentence, with its value.
    public func meaning(of key: Key) -> String {
        switch key {
        case .issuer: "\(issuer.text) says who people are."
        case .clientIdentifier: "That provider knows this device as \(clientIdentifier)."
        case .scopes:
            "Each sign-in asks for \(ManagedConfiguration.list(scopes)); an app gets the scopes in its manifest."
        case .offlineAccess:
            switch offlineAccess {
            case .never: "Tokens end with the provider's session."
            case .always:
                "The device asks for tokens that outlive the provider's session and, with some providers, the sign-out."
            }
        case .signInMethods:
            switch signInMethods {
            case [.browser]: "People sign in in a browser of this device."
            case [.deviceCode]: "People sign in on another device, with a code that this one shows."
            default: "People sign in in a browser of this device, or on another one with a code that this one shows."
            }
        case .loopbackPorts:
            loopbackPorts.ports.isEmpty
                ? "A browser comes back to any free port of this machine."
                : "A browser comes back to 127.0.0.1, port \(loopbackPorts.ports.map { "\($0)" }.joined(separator: " or "))."
        case .trustAnchors:
            trustAnchors.map { "The provider is trusted by the authorities in \($0), and by no others." }
                ?? "The provider is trusted by the system's authorities."
        case .tenantClaim: "The claim \(tenantClaim) names the person's tenant."
        case .endpoints:
            endpoints.addresses.isEmpty
                ? "The provider's own description has its addresses."
                : "These addresses override the addresses in the provider's own description."
        case .remoteCheckInterval:
            "The provider is asked every \(remoteCheckInterval.text) whether the person may still be signed in."
        case .offlineGrace: "A session lasts \(offlineGrace.text) without a response from the provider."
        case .onProviderSessionEnd:
            switch onProviderSessionEnd {
            case .signOut: "When the provider ends its session, the device signs out."
            case .reauthenticate:
                "When the provider ends its session, the device's stays, and the person signs in again before the next token."
            }
        case .backChannelLogout:
            backChannelLogout.map { "The provider reports the end of its sessions at \($0.text)." }
                ?? "The provider cannot report the end of its sessions; the device asks at intervals."
        case .sharedSignals:
            sharedSignals.map { signals in
                "The provider's events about this device's sessions are fetched from \(signals.endpoint)"
                    + (signals.device.map { ", and those about the device itself, which it calls \($0)." } ?? ".")
            } ?? "No events are fetched from the provider."
        }
    }
}
