import Foundation
import SharedDeviceBroker
import Testing

@Suite("Keys of the managed configuration")
struct ConfigurationKeyTests {
    /// Every key with a value that is not its default, as a property list has it.
    private static let everyKey: [String: any Sendable] = [
        "sharedDeviceMode": true, "organization": "Contoso", "tenantIdentifier": "contoso.example",
        "cleanupPolicy": "strict", "cleanupTimeout": 90.5, "requiresEnrolment": false, "requiresJoin": true,
        "inactivityTimeout": 600, "shiftEnds": ["22:00", "06:00", "14:00", "06:00"], "signOutOnScreenLock": true,
        "signOutOnLogout": true, "endSessionURL": "http://localhost:8080/logout",
        "Enable_SSO_On_All_ManagedApps": 1, "AppAllowList": "com.example.a, com.example.b",
        "AppBlockList": "com.example.c", "AppPrefixAllowList": "com.example.,org.example.",
        "AppCookieSSOAllowList": "com.example.d", "Type": "Redirect", "ExtensionIdentifier": "com.example.ext",
        "TeamIdentifier": "SGGM6D27TK", "URLs": ["https://login.example.com", "https://sts.example.net/path"],
        "browser_sso_interaction_enabled": 0, "disable_explicit_app_prompt": 0,
        "disable_explicit_app_prompt_and_autologin": 1, "disable_explicit_native_app_prompt": 1,
        "disable_explicit_native_app_prompt_and_autologin": 1, "disable_inapp_sso_signin": 1,
        "admin_debug_mode_enabled": 1, "device_registration": "{{DEVICEREGISTRATION}}",
    ]

    private static func expected() throws -> ManagedConfiguration {
        ManagedConfiguration(
            sharedDeviceMode: true,
            organization: "Contoso",
            tenantIdentifier: "contoso.example",
            cleanup: CleanupPolicy(isStrict: true, timeout: .milliseconds(90_500)),
            eligibility: AppLists(
                allowed: ["com.example.a", "com.example.b"],
                blocked: ["com.example.c"],
                allowedPrefixes: ["com.example.", "org.example."],
                cookiePrefixes: ["com.example.d"],
                allowsAllManagedApps: true
            ),
            requiresEnrolment: false,
            requiresJoin: true,
            automaticSignOut: AutomaticSignOut(
                inactivity: .seconds(600),
                shiftEnds: try ["06:00", "14:00", "22:00"].map { try #require(TimeOfDay($0)) },
                onScreenLock: true,
                onLogout: true
            ),
            endSessionURL: URL(string: "http://localhost:8080/logout"),
            ssoExtension: ExtensionProfile(
                type: "Redirect",
                extensionIdentifier: "com.example.ext",
                teamIdentifier: "SGGM6D27TK",
                urls: try ["https://login.example.com", "https://sts.example.net/path"].map {
                    try #require(URL(string: $0))
                },
                allowsBrowserInteraction: false,
                disablesAppPrompt: false,
                disablesAppPromptAndSignsIn: true,
                disablesNativeAppPrompt: true,
                disablesNativeAppPromptAndSignsIn: true,
                disablesSignInInsideApps: true,
                isDebugModeEnabled: true,
                deviceRegistration: "{{DEVICEREGISTRATION}}"
            )
        )
    }

    @Test("every key says the same in JSON, in an XML property list and in a binary one")
    func everyForm() throws {
        #expect(Set(Self.everyKey.keys) == Set(ConfigurationKey.allCases.map(\.rawValue)))
        let xml = try PropertyListSerialization.data(fromPropertyList: Self.everyKey, format: .xml, options: 0)
        for (content, format) in [
            (try JSONSerialization.data(withJSONObject: Self.everyKey), ConfigurationFormat.json),
            (xml, .propertyList), (try binaryPlist(Self.everyKey), .propertyList),
        ] {
            let document = try document(content)
            #expect(document.configuration == (try Self.expected()))
            #expect(document.format == format)
        }
    }

    @Test("a configuration that is kept means the same when it is read again")
    func keptConfiguration() throws {
        let texts = ["{}", #"{"cleanupPolicy": "strict"}"#, #"{"cleanupTimeout": 0, "organization": "\u00e9\"\n"}"#]
        let configurations = try texts.map { try document($0).configuration } + [try Self.expected()]
        for configuration in configurations {
            #expect(try document(configuration.json).configuration == configuration)
        }
    }

    @Test("the extension's and the app's keys may be in ExtensionData, in both forms")
    func extensionData() throws {
        let payloadKeys: Set = ["Type", "ExtensionIdentifier", "TeamIdentifier", "URLs"]
        var nested = Self.everyKey.filter { payloadKeys.contains($0.key) }
        nested["ExtensionData"] = Self.everyKey.filter { !payloadKeys.contains($0.key) }
        for content in [try JSONSerialization.data(withJSONObject: nested), try binaryPlist(nested)] {
            #expect(try document(content).configuration == (try Self.expected()))
        }
    }

    @Test("an absent key has its documented default")
    func defaults() throws {
        let configuration = try document("{}").configuration
        #expect(configuration == ManagedConfiguration(sharedDeviceMode: false))
        #expect(configuration.organization == nil)
        #expect(configuration.tenantIdentifier == nil)
        #expect(configuration.cleanup == CleanupPolicy(isStrict: false, timeout: nil))
        #expect(configuration.eligibility == AppLists())
        #expect(!configuration.eligibility.isExclusive)
        #expect(!configuration.eligibility.allowsAllManagedApps)
        #expect(configuration.requiresEnrolment == nil)
        #expect(!configuration.requiresJoin)
        #expect(configuration.automaticSignOut == AutomaticSignOut())
        #expect(configuration.endSessionURL == nil)
        let profile = configuration.ssoExtension
        #expect(profile.allowsBrowserInteraction)
        #expect(profile.disablesAppPrompt)
        #expect(!profile.disablesAppPromptAndSignsIn)
        #expect(!profile.disablesNativeAppPrompt)
        #expect(!profile.disablesNativeAppPromptAndSignsIn)
        #expect(!profile.disablesSignInInsideApps)
        #expect(!profile.isDebugModeEnabled)
        #expect(profile.urls.isEmpty)
    }

    @Test("a strict policy, or a bus of many users, requires enrolment unless the file says otherwise")
    func enrolment() throws {
        for (text, alone, amongMany) in [
            (#"{"cleanupPolicy": "strict"}"#, true, true), (#"{"cleanupPolicy": "advisory"}"#, false, true),
            (#"{"cleanupPolicy": "strict", "requiresEnrolment": false}"#, false, false),
            (#"{"requiresEnrolment": true}"#, true, true), (#"{"requiresEnrolment": false}"#, false, false),
        ] {
            let configuration = try document(text).configuration
            #expect(DevicePolicy(configuration, hasManyUsers: false).requiresEnrolment == alone, "\(text)")
            #expect(DevicePolicy(configuration, hasManyUsers: true).requiresEnrolment == amongMany, "\(text)")
        }
    }

    @Test(
        "without a timeout a strict policy waits without end and an advisory one not at all; a timeout holds for both"
    )
    func longestWait() throws {
        for (text, wait) in [
            (#"{"cleanupPolicy": "strict"}"#, nil), ("{}", Duration.zero),
            (#"{"cleanupPolicy": "strict", "cleanupTimeout": 0}"#, .zero),
            (#"{"cleanupTimeout": 2.5}"#, .milliseconds(2500)),
            (#"{"cleanupPolicy": "strict", "cleanupTimeout": 30}"#, .seconds(30)),
        ] {
            #expect(try document(text).configuration.cleanup.longestWait == wait, "\(text)")
        }
    }

    @Test("blanks around the elements of a list do not count")
    func blanks() throws {
        let lists = try document("{\"AppAllowList\": \" com.a.b ,\\n com.c.d\"}").configuration.eligibility
        #expect(lists.allowed == ["com.a.b", "com.c.d"])
    }

    @Test("a switch of the plug-in may be a Boolean in JSON, and must be an integer in a property list")
    func switches() throws {
        #expect(
            try document(#"{"Enable_SSO_On_All_ManagedApps": true}"#).configuration.eligibility.allowsAllManagedApps
        )
        let error = configurationError(plistXML("<dict><key>Enable_SSO_On_All_ManagedApps</key><true/></dict>"))
        #expect(error?.code == .wrongType)
        #expect(error?.remedy.contains("<integer>1</integer>") == true)
    }

    @Test(
        "an end-session page is https, or http on this machine",
        arguments: [
            ("https://login.example.com/logout?x=1", true), ("http://localhost/logout", true),
            ("http://127.0.0.1:8080/", true), ("http://[::1]:8080/", true), ("http://login.example.com/", false),
            ("http://localhost.example.com/", false), ("ftp://localhost/", false), ("login.example.com", false),
            ("https://", false), ("https:///logout", false), ("https://user@example.com/", false),
            ("https://exa mple.com/", false), ("", false), ("file:///etc/passwd", false),
        ]
    )
    func endSessionURL(text: String, isValid: Bool) throws {
        let content = try JSONSerialization.data(withJSONObject: ["endSessionURL": text])
        let error = configurationError(content)
        #expect((error == nil) == isValid)
        if isValid {
            #expect(try document(content).configuration.endSessionURL?.absoluteString == text)
        } else {
            #expect(error?.key == "endSessionURL")
        }
    }

    @Test("the settings, written as JSON again, are the same settings")
    func settings() throws {
        for content in [
            try JSONSerialization.data(withJSONObject: Self.everyKey), Data("{}".utf8),
            try fixture("shared-device.mobileconfig"),
        ] {
            let settings = try document(content).configuration.settings
            #expect(settings.map(\.key) == ConfigurationKey.allCases)
            let written = settings.filter { $0.value != .null }.map { ($0.key.rawValue, $0.value) }
            let again = try document(JSONEncoder().encode(Dictionary(uniqueKeysWithValues: written))).configuration
            #expect(again.settings.map(\.value) == settings.map(\.value))
        }
    }
}
