import Basics
import BrokerCore
import DeviceConfiguration
import Foundation
import Identity
import Testing

@Suite("Configuration keys of the organisation's provider")
struct OrganisationSettingsTests {
    /// The required keys of a provider.
    static let needed =
        #""sharedDeviceMode": true, "identity": "oidc", "#
        + #""oidcIssuer": "https://login.example.com/realm/", "oidcClientID": "device""#

    /// All keys, with values that are not their defaults.
    static let everyKey = """
        {
            \(needed), "microsoftBroker": true,
            "oidcScopes": ["openid", "profile"], "oidcOfflineAccess": "always", "oidcSignInMethods": ["deviceCode"],
            "oidcLoopbackPorts": [8400, 8401], "oidcTrustAnchors": "/etc/shared-device/provider.pem",
            "oidcTenantClaim": "org",
            "oidcEndpoints": {"token_endpoint": "https://login.example.com/token", "jwks_uri": "http://127.0.0.1:1/keys"},
            "remoteCheckInterval": 60, "offlineGrace": 0, "onProviderSessionEnd": "reauthenticate",
            "backChannelLogout": "[::1]:8443",
            "sharedSignals": {"endpoint": "https://login.example.com/streams/7/poll?a=b", "audience": "urn:till:7", "device": "till-7",
                "scopes": ["ssf.read", "ssf.manage"]}
        }
        """

    private func settings(_ more: String = "") throws -> OrganisationSettings {
        try #require(configuration("{\(Self.needed)\(more.isEmpty ? "" : ", ")\(more)}").organisation)
    }

    @Test("all keys are read and passed to the policy")
    func everyKey() throws {
        let all = try configuration(Self.everyKey)
        let keys = try #require(JSONSerialization.jsonObject(with: Data(Self.everyKey.utf8)) as? [String: Any]).keys
        #expect(Set(keys).isSuperset(of: OrganisationSettings.Key.allCases.map(\.rawValue)))
        #expect(all.unknownKeys == [] && all.warnings == [])
        let settings = try #require(all.organisation)
        var wanted = OrganisationSettings(issuer: settings.issuer, clientIdentifier: "device")
        wanted.scopes = ["openid", "profile"]
        wanted.offlineAccess = .always
        wanted.signInMethods = [.deviceCode]
        wanted.loopbackPorts = PortList([8400, 8401])
        wanted.trustAnchors = "/etc/shared-device/provider.pem"
        wanted.tenantClaim = "org"
        wanted.endpoints = settings.endpoints
        (wanted.remoteCheckInterval, wanted.offlineGrace) = (Seconds(60), Seconds(0))
        wanted.onProviderSessionEnd = .reauthenticate
        wanted.backChannelLogout = .network(address: "::1", port: 8443)
        wanted.sharedSignals = settings.sharedSignals
        #expect(settings == wanted && settings.issuer.text == "https://login.example.com/realm/")
        let endpoints = ["token_endpoint": "https://login.example.com/token", "jwks_uri": "http://127.0.0.1:1/keys"]
        #expect(settings.endpoints.addresses == endpoints)
        let signals = try #require(settings.sharedSignals)
        #expect(signals.endpoint == "https://login.example.com/streams/7/poll?a=b" && signals.device == "till-7")
        #expect(signals.audience == "urn:till:7" && signals.scopes == ["ssf.read", "ssf.manage"])

        let policy = DevicePolicy(all, hasManyUsers: false)
        #expect(policy.identity == .oidc && policy.organisation == settings && !policy.passwordSignIn)
        let meanings = Dictionary(uniqueKeysWithValues: all.meanings.map { ($0.key, $0.meaning) })
        #expect(Set(meanings.keys) == Set(ManagedConfiguration.keyNames))
    }

    @Test("an absent key has its documented default")
    func defaults() throws {
        let settings = try settings()
        #expect(settings.scopes == ["openid", "profile", "email"] && settings.tenantClaim == "tid")
        #expect(settings.offlineAccess == .never && settings.onProviderSessionEnd == .signOut)
        #expect(settings.signInMethods == [.browser, .deviceCode])
        #expect(settings.loopbackPorts.ports == [] && settings.endpoints.addresses == [:])
        #expect(settings.remoteCheckInterval == Seconds(300) && settings.offlineGrace == Seconds(43_200))
        #expect(settings.trustAnchors == nil && settings.backChannelLogout == nil && settings.sharedSignals == nil)
        let least = try self.settings(#""sharedSignals": {"endpoint": "https://login.example.com/poll"}"#)
        let signals = try #require(least.sharedSignals)
        #expect(signals.audience == nil && signals.device == nil && signals.scopes == ["ssf.read"])
    }

    @Test("a secret in the file is refused under any key", arguments: ["oidc", "embedded"])
    func secret(identity: String) throws {
        for key in ["oidcClientSecret", "client_secret", "secret"] {
            let needed = Self.needed.replacing("\"oidc\"", with: "\"\(identity)\"")
            let error = try #require(configurationError("{\(needed), \"\(key)\": \"hush\"}"))
            #expect(error.key == key && error.code == .invalidValue && !error.description.contains("hush"))
            #expect(error.remedy.contains("systemd credential oidc-client-secret"))
        }
    }

    @Test("provider keys without a provider are ignored with a warning")
    func idle() throws {
        let embedded = try configuration(#"{"sharedDeviceMode": true, "oidcIssuer": "nonsense", "offlineGrace": 5}"#)
        #expect(embedded.organisation == nil && embedded.warnings.map(\.key) == ["offlineGrace", "oidcIssuer"])
        let passwords = try configuration("{\(Self.needed), \"passwordSignIn\": true}")
        #expect(passwords.warnings.map(\.key) == ["passwordSignIn"])
        let microsoft = try configuration(#"{"sharedDeviceMode": true, "microsoftBroker": true}"#)
        #expect(microsoft.warnings.map(\.key) == ["microsoftBroker"])
    }

    private typealias Mistakes = (key: String, values: [String], remedy: String)

    private static let invalidValues: [Mistakes] = [
        ("oidcIssuer", [#""http://login.example.com""#], "https"), ("oidcIssuer", [#""https://a.example/?x=1""#], "?"),
        ("oidcIssuer", [#""https://a.example/#x""#], "#"), ("oidcIssuer", ["\"\(long(4090))\""], "4000 bytes"),
        // The address of a discovery document.
        (
            "oidcIssuer", [#""https://login.example.com/realm/.well-known/openid-configuration""#],
            "leave /.well-known/openid-configuration out"
        ),
        ("oidcClientID", [#""""#, #""a\nb""#], "printable ASCII"), ("oidcScopes", [#"["profile"]"#], "add openid"),
        ("oidcScopes", [#"["openid", "a b"]"#], "one word"), ("oidcScopes", [#"["openid", "openid"]"#], "once"),
        ("oidcOfflineAccess", [#""sometimes""#], "never or always"),
        ("oidcSignInMethods", ["[]", #"["password"]"#], "browser, deviceCode"),
        ("oidcLoopbackPorts", ["[80]"], "1024"), ("oidcLoopbackPorts", ["[70000]"], "65535"),
        ("oidcLoopbackPorts", ["[8400, 8400]"], "once"), ("oidcTrustAnchors", [#""provider.pem""#], "absolute path"),
        ("oidcTenantClaim", [#""""#], "one word"),
        ("oidcEndpoints", [#"{"token": "https://a.example/"}"#], "token_endpoint"),
        (
            "oidcEndpoints",
            [#"{"token_endpoint": "http://a.example/"}"#, #"{"token_endpoint": "\#(long(4097))"}"#], "https"
        ),
        ("oidcEndpoints", [#"{"token_endpoint": "https://a.example/#x"}"#], "what follows #"),
        ("remoteCheckInterval", ["59", "86401"], "60 to 86400"), ("offlineGrace", ["-1"], "0 or more"),
        ("onProviderSessionEnd", [#""nothing""#], "signOut or reauthenticate"),
        ("backChannelLogout", [#""localhost:8443""#, #""127.0.0.1:0""#, #""1.2.3.999:80""#, #""8443""#], "numeric"),
        ("identity", [#""entra""#], "embedded, oidc or login-session"),
        ("sharedSignals", ["{}", #"{"endpoint": "https://login.example.com/poll#a"}"#], "without what follows #"),
        ("sharedSignals", [#"{"endpoint": "http://login.example.com/poll"}"#], "https://"),
        ("sharedSignals", [signals(#""audience": """#), signals(#""device": "a\u0000""#)], "255 bytes"),
        ("sharedSignals", [signals(#""scopes": ["a", "a"]"#)], "and once"),
        ("sharedSignals", [signals(#""interval": 5"#)], "endpoint, audience"),
        ("sharedSignals", [signals(#""accessToken": "x""#)], "shared-signals-token"),
    ]

    private static let wrongTypes: [Mistakes] = [
        ("oidcIssuer", ["7"], "a string"), ("oidcScopes", [#""openid""#], "an array of strings"),
        ("oidcLoopbackPorts", [#"["8400"]"#, "8400"], "numbers"),
        ("oidcEndpoints", ["[]", #"{"token_endpoint": 7}"#], "an object"),
        ("remoteCheckInterval", [#""300""#], "a number"), ("passwordSignIn", ["1"], "true or false"),
        ("microsoftBroker", ["null"], "true or false"),
        ("sharedSignals", [#""https://login.example.com/poll""#, #"{"endpoint": 7}"#], "an object"),
    ]

    @Test("a missing or invalid value, or one of the wrong type, is an error with a remedy")
    func invalid() throws {
        let noIssuer = configurationError(#"{"identity": "oidc", "oidcClientID": "device"}"#)
        #expect(noIssuer?.key == "oidcIssuer" && noIssuer?.code == .invalidValue)
        let noClient = configurationError(#"{"identity": "oidc", "oidcIssuer": "https://login.example.com"}"#)
        #expect(noClient?.key == "oidcClientID" && noClient?.message.contains("absent") == true)
        try expectMistakes(.invalidValue, Self.invalidValues)
        try expectMistakes(.wrongType, Self.wrongTypes)
    }

    private func expectMistakes(_ code: ManagedConfigurationError.Code, _ table: [Mistakes]) throws {
        for (key, values, remedy) in table {
            for value in values {
                let error = try #require(configurationError(Self.with(key, value)), "\(key): \(value)")
                let text = code == .wrongType ? error.remedy : error.description
                #expect(error.code == code && error.key == key && text.contains(remedy), "\(error)")
            }
        }
    }

    private static func signals(_ member: String) -> String {
        #"{"endpoint": "https://a.example/poll", \#(member)}"#
    }

    private static func long(_ count: Int) -> String {
        let beginning = "https://a.example/"
        return beginning + String(repeating: "a", count: count - beginning.utf8.count)
    }

    @Test("all addresses in a valid configuration can be requested")
    func asksProvider() throws {
        let settings = try settings(#""oidcEndpoints": {"token_endpoint": "\#(Self.long(4096))"}"#)
        #expect(settings.endpoints.addresses.values.allSatisfy { HTTPAddress($0) != nil })
        let configuration = try configuration(
            #"{"sharedDeviceMode": true, "endSessionURL": "https://login.example.com/app#/logout"}"#
        )
        #expect(configuration.endSessionURL?.text.hasSuffix("#/logout") == true)
    }

    /// The required keys and this one, which replaces a required key of the same name.
    private static func with(_ key: String, _ value: String) -> String {
        let others = needed.split(separator: ", ").filter { !$0.hasPrefix("\"\(key)\"") }
        return "{\((others + ["\"\(key)\": \(value)"]).joined(separator: ", "))}"
    }
}

@Suite("Which tokens an app may request")
struct TokenRightsTests {
    private func manifest(_ more: String) throws(ManagedConfigurationError) -> AppManifest {
        try AppManifest(
            json: Data("{\"id\": \"org.example.orders\", \"executable\": \"/usr/bin/orders\"\(more)}".utf8),
            file: "orders.json"
        )
    }

    @Test("scopes and client IDs are read, none means no scope, and an error names its key")
    func all() throws {
        let none = try manifest("").tokens
        #expect(none == TokenRights() && none.refused(of: ["profile", "email"]) == ["email", "profile"])
        let full = try manifest(
            """
            , "scopes": ["openid", "orders.read"], "microsoftClientIDs": ["D7B530A4-7680-4C23-A8BF-C52C121D2E87"],
            "microsoftScopes": {"https://graph.microsoft.com/.default": ["orders.read"]}
            """
        )
        #expect(full.warnings.isEmpty)
        #expect(full.tokens.refused(of: ["orders.read", "orders.write"]) == ["orders.write"])
        #expect(full.tokens.microsoftClientIdentifiers == ["d7b530a4-7680-4c23-a8bf-c52c121d2e87"])
        #expect(full.tokens.microsoftScopes == ["https://graph.microsoft.com/.default": ["orders.read"]])
        for (key, value, remedy) in [
            ("scopes", #"["a b"]"#, "one word"), ("scopes", #""a""#, "array of strings"),
            ("microsoftClientIDs", #"["edge"]"#, "hexadecimal"), ("microsoftScopes", "[]", "an object"),
            ("microsoftScopes", #"{"a": ["b"]}"#, "add it to scopes"), ("microsoftScopes", #"{"a b": []}"#, "one word"),
        ] {
            let thrown = #expect(throws: ManagedConfigurationError.self) { try manifest(", \"\(key)\": \(value)") }
            let error = try #require(thrown)
            #expect(error.key == key && error.remedy.contains(remedy), "\(error)")
        }
    }
}
