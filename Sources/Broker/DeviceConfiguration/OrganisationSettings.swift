import Basics
public import Identity

/// The organisation's own identity provider (OpenID Connect), and how this device uses it: the keys of the managed
/// configuration that apply if `identity` is `oidc`. Not the client's secret, because everyone may read the file.
public struct OrganisationSettings: Sendable, Equatable {
    /// The provider's issuer identifier, compared exactly, including a trailing slash.
    public var issuer: IssuerAddress
    public var clientIdentifier: String
    /// The scopes of each sign-in. They include `openid`.
    public var scopes = ["openid", "profile", "email"]
    public var offlineAccess = OfflineAccess.never
    /// The ways for people to reach the provider's page; at least one.
    public var signInMethods = SignInStart.Method.allCases
    /// The loopback ports of the redirect address that the provider accepts; empty means any free port.
    public var loopbackPorts = PortList([])
    /// The absolute path of a PEM file with the trusted authorities for the provider; `nil` means the system's.
    public var trustAnchors: String?
    /// The claim that contains the person's tenant.
    public var tenantClaim = "tid"
    public var endpoints = ProviderEndpoints()
    /// How often the provider is asked whether the person may still be signed in.
    public var remoteCheckInterval = Seconds(300)
    /// How long a session lasts without a response of the provider.
    public var offlineGrace = Seconds(43_200)
    public var onProviderSessionEnd = SessionEndAction.signOut
    /// The address to which the provider reports the end of its sessions; `nil` means that it does not.
    public var backChannelLogout: ListeningAddress?
    /// The provider's event stream for this device; `nil` means that there is none.
    public var sharedSignals: SignalStreamSettings?

    public init(issuer: IssuerAddress, clientIdentifier: String) {
        (self.issuer, self.clientIdentifier) = (issuer, clientIdentifier)
    }
}

extension OrganisationSettings: Codable {
    /// The keys as they are written, in display order.
    public enum Key: String, CodingKey, CaseIterable, Sendable {
        case issuer = "oidcIssuer"
        case clientIdentifier = "oidcClientID"
        case scopes = "oidcScopes"
        case offlineAccess = "oidcOfflineAccess"
        case signInMethods = "oidcSignInMethods"
        case loopbackPorts = "oidcLoopbackPorts"
        case trustAnchors = "oidcTrustAnchors"
        case tenantClaim = "oidcTenantClaim"
        case endpoints = "oidcEndpoints"
        case remoteCheckInterval, offlineGrace, onProviderSessionEnd, backChannelLogout, sharedSignals
    }

    public typealias CodingKeys = Key

    public init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: Key.self)
        let provider = "write what the provider calls itself, such as https://login.example.com/realm"
        issuer = try values.needed(.issuer, provider)
        clientIdentifier = try values.needed(
            .clientIdentifier,
            "write the name by which the provider knows this device"
        )
        guard (1...255).contains(clientIdentifier.utf8.count),
            clientIdentifier.utf8.allSatisfy({ (0x20...0x7E).contains($0) })
        else {
            throw DecodingError.invalid(
                "“\(clientIdentifier.printable(64))” is no client ID",
                remedy: "write it as the provider shows it: printable ASCII, 255 characters at most",
                at: [Key.clientIdentifier]
            )
        }
        scopes = try values.scopes(.scopes) ?? scopes
        guard scopes.contains("openid") else {
            throw DecodingError.invalid("“openid” is missing", remedy: "add openid to the list", at: [Key.scopes])
        }
        offlineAccess = try values.word(.offlineAccess) ?? offlineAccess
        if let names: [String] = try values.optional(.signInMethods) {
            signInMethods = names.compactMap(SignInStart.Method.init)
            guard !names.isEmpty, signInMethods.count == names.count, Set(names).count == names.count else {
                throw DecodingError.invalid(
                    "it is no list of ways to sign in",
                    remedy: "write browser, deviceCode or both, each once, or leave the key out",
                    at: [Key.signInMethods]
                )
            }
        }
        loopbackPorts = try values.optional(.loopbackPorts) ?? loopbackPorts
        trustAnchors = try values.text(
            .trustAnchors,
            "is no absolute path of a file",
            remedy: "write the absolute path of a PEM file, or leave the key out",
            where: { $0.hasPrefix("/") && !$0.hasSuffix("/") && !$0.utf8.contains(0) }
        )
        tenantClaim =
            try values.text(
                .tenantClaim,
                "is no claim's name",
                remedy: "write one word, such as tid, or leave the key out",
                where: AppIdentifier.isPlausible
            ) ?? tenantClaim
        endpoints = try values.optional(.endpoints) ?? endpoints
        remoteCheckInterval = try values.optional(.remoteCheckInterval) ?? remoteCheckInterval
        guard (60...86_400).contains(remoteCheckInterval.value) else {
            throw DecodingError.invalid(
                "it is \(remoteCheckInterval.text)",
                remedy: "write a number from 60 to 86400, or leave the key out",
                at: [Key.remoteCheckInterval]
            )
        }
        offlineGrace = try values.optional(.offlineGrace) ?? offlineGrace
        onProviderSessionEnd = try values.word(.onProviderSessionEnd) ?? onProviderSessionEnd
        backChannelLogout = try values.optional(.backChannelLogout)
        sharedSignals = try values.optional(.sharedSignals)
    }
}

extension KeyedDecodingContainer<OrganisationSettings.Key> {
    /// A value that is required for a provider.
    fileprivate func needed<Value: Decodable>(_ key: Key, _ remedy: String) throws -> Value {
        if let value: Value = try optional(key) { return value }
        let message = "the key is absent, and \"identity\": \"oidc\" needs it"
        throw DecodingError.invalid(message, remedy: remedy, at: [key])
    }
}

extension KeyedDecodingContainer {
    func word<Word: RawRepresentable<String> & CaseIterable>(_ key: Key) throws -> Word? {
        guard let text: String = try optional(key) else { return nil }
        guard let word = Word(rawValue: text) else {
            let words = Word.allCases.map(\.rawValue)
            let choice = words.dropLast().joined(separator: ", ") + " or " + (words.last ?? "")
            throw DecodingError.invalid("it is “\(text)”", remedy: "write \(choice), or leave the key out", at: [key])
        }
        return word
    }

    /// Scopes (RFC 6749, section 3.3), without duplicates.
    func scopes(_ key: Key) throws -> [String]? {
        guard let scopes: [String] = try optional(key) else { return nil }
        guard Set(scopes).count == scopes.count, scopes.allSatisfy(AccessToken.isScope) else {
            throw DecodingError.invalid(
                "it is no list of scopes",
                remedy: "write each as one word of visible ASCII, and once, or leave the key out",
                at: [key]
            )
        }
        return scopes
    }
}

extension OrganisationSettings {
    /// The settings that affect sign-ins in progress. Defaults replace checks of sessions and reports of events.
    public var signInPart: OrganisationSettings {
        let usual = OrganisationSettings(issuer: issuer, clientIdentifier: clientIdentifier)
        var part = self
        part.remoteCheckInterval = usual.remoteCheckInterval
        part.offlineGrace = usual.offlineGrace
        part.onProviderSessionEnd = usual.onProviderSessionEnd
        part.backChannelLogout = usual.backChannelLogout
        part.sharedSignals = usual.sharedSignals
        return part
    }
}

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
