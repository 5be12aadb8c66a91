import Identity

extension OrganisationSettings {
    /// The meaning of a key for this device in a sentence, with its value.
    package func meaning(of key: Key) -> String {
        switch key {
        case .issuer: "\(issuer.text) says who people are."
        case .clientIdentifier: "That provider knows this device as \(clientIdentifier)."
        case .scopes: "Each sign-in asks for \(ManagedConfiguration.list(scopes)); an app gets what its manifest has."
        case .offlineAccess:
            switch offlineAccess {
            case .never: "Tokens end with the provider's session."
            case .always: "Tokens are asked for that outlive the provider's session, and some providers' sign-out."
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
        case .tenantClaim: "Whose tenant a person is of, the claim \(tenantClaim) says."
        case .endpoints:
            endpoints.addresses.isEmpty
                ? "The provider's own description has its addresses."
                : "These addresses count before those of the provider's own description."
        case .remoteCheckInterval:
            "The provider is asked every \(remoteCheckInterval.text) whether the person may still be signed in."
        case .offlineGrace: "A session lasts \(offlineGrace.text) without an answer of the provider."
        case .onProviderSessionEnd:
            switch onProviderSessionEnd {
            case .signOut: "When the provider ends its session, the device signs out."
            case .reauthenticate:
                "When the provider ends its session, the device's stays, and the person signs in again before the next token."
            }
        case .backChannelLogout:
            backChannelLogout.map { "The provider tells of the end of its sessions at \($0.text)." }
                ?? "The provider has no way to tell of the end of its sessions; it is asked."
        case .sharedSignals:
            sharedSignals.map { signals in
                "The provider's events about this device's sessions are fetched from \(signals.endpoint)"
                    + (signals.device.map { ", and those about the device itself, which it calls \($0)." } ?? ".")
            } ?? "No events are fetched from the provider."
        }
    }
}
