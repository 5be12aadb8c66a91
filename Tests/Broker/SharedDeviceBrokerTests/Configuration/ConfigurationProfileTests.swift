import Foundation
import SharedDeviceBroker
import Testing

@Suite("Profiles as managed configuration")
struct ConfigurationProfileTests {
    private let extensionPayload: [String: Any] = [
        "PayloadType": "com.apple.extensiblesso", "PayloadUUID": "1", "PayloadVersion": 1, "PayloadIdentifier": "a",
        "Type": "Redirect", "ExtensionIdentifier": "com.microsoft.azureauthenticator.ssoextension",
        "ExtensionData": ["sharedDeviceMode": true, "AppAllowList": "com.a.b"],
    ]

    private func profile(_ payloads: [String: Any]...) throws -> Data {
        try binaryPlist(["PayloadType": "Configuration", "PayloadVersion": 1, "PayloadContent": payloads])
    }

    @Test("Intune's configuration of a shared device is taken as it is")
    func intune() throws {
        let document = try document(fixture("shared-device.mobileconfig"))
        #expect(document.format == .propertyList)
        let profile = document.configuration.ssoExtension
        #expect(
            document.configuration
                == ManagedConfiguration(
                    sharedDeviceMode: true,
                    ssoExtension: ExtensionProfile(
                        type: "Redirect",
                        extensionIdentifier: "com.microsoft.azureauthenticator.ssoextension",
                        urls: profile.urls
                    )
                )
        )
        #expect(profile.urls.count == 9)
        #expect(profile.urls.first?.absoluteString == "https://login.microsoftonline.com")
        #expect(profile.urls.last?.absoluteString == "https://login-us.microsoftonline.com")
        #expect(document.warnings.map(\.key) == ["Type", "ExtensionIdentifier", "URLs"])
    }

    @Test("a payload alone, its ExtensionData alone and the app configuration alone are taken, as XML after blanks too")
    func bare() throws {
        #expect(try document(binaryPlist(extensionPayload)).configuration.eligibility.allowed == ["com.a.b"])
        #expect(try document(binaryPlist(["sharedDeviceMode": true])).configuration.mode == .shared)
        let dict = "<dict><key>sharedDeviceMode</key><true/></dict>"
        #expect(try document("\u{feff}\n  " + plistXML(dict)).configuration.mode == .shared)
        #expect(try document("<plist>\(dict)</plist>").configuration.unknownKeys == [])
    }

    @Test("one of the two payloads is enough")
    func onePayload() throws {
        #expect(try document(profile(extensionPayload)).configuration.mode == .shared)
        for app: [String: Any] in [
            ["PayloadType": "com.apple.app.managed", "sharedDeviceMode": true],
            ["PayloadType": "com.apple.app.managed", "Configuration": ["sharedDeviceMode": true]],
            ["PayloadType": "com.apple.configuration.app.managed", "AppConfig": ["sharedDeviceMode": true]],
            ["PayloadType": "com.example.settings", "Configuration": ["sharedDeviceMode": true]],
            ["sharedDeviceMode": true],
        ] {
            let document = try document(profile(app))
            #expect(document.configuration.mode == .shared, "\(app)")
            #expect(document.configuration.unknownKeys == [], "\(app)")
        }
    }

    @Test("payloads about something else are passed over, with a warning that names them")
    func otherPayloads() throws {
        let kerberos: [String: Any] = [
            "PayloadType": "com.apple.extensiblesso", "Type": "Credential",
            "ExtensionIdentifier": "com.apple.AppSSOKerberos",
        ]
        let document = try document(profile(["PayloadType": "com.apple.wifi.managed"], kerberos, extensionPayload))
        #expect(document.configuration.mode == .shared)
        #expect(document.configuration.ssoExtension.type == "Redirect")
        let messages = document.warnings.filter { $0.key == nil }.map(\.message)
        #expect(messages.count == 2)
        #expect(messages.first?.contains("PayloadContent[0] (com.apple.wifi.managed)") == true)
        #expect(messages.last?.contains("PayloadContent[1] (com.apple.extensiblesso)") == true)
    }

    @Test("a profile without any payload for this is an error, not a personal device")
    func noPayload() throws {
        for content in [try profile(), try profile(["PayloadType": "com.apple.wifi.managed"])] {
            let error = try #require(configurationError(content))
            #expect(error.code == .invalidValue)
            #expect(error.key == "PayloadContent")
            #expect(error.message.contains("com.apple.extensiblesso"))
        }
    }

    @Test("two payloads for one extension are an error")
    func twoExtensions() throws {
        let error = try #require(configurationError(try profile(extensionPayload, extensionPayload)))
        #expect(error.code == .contradiction)
        #expect(error.key == "PayloadContent[1]")
    }

    @Test("a payload that is no dictionary is an error that says which")
    func noDictionary() throws {
        let error = configurationError(try binaryPlist(["PayloadContent": [extensionPayload, "x"]]))
        #expect(error?.code == .wrongType)
        #expect(error?.key == "PayloadContent[1]")
    }
}

@Suite("Warnings about the managed configuration")
struct ConfigurationWarningTests {
    private func warnings(_ text: String) throws -> [String] { try document(text).warnings.map(\.description) }

    @Test("a misspelt key is told with the key that is meant; one that is like no key is told alone")
    func misspelt() throws {
        for (key, meant) in [
            ("shareddevicemode", "sharedDeviceMode"), ("shared_device_mode", "sharedDeviceMode"),
            ("sharedDevicemod", "sharedDeviceMode"), ("AppAlowList", "AppAllowList"), ("appBlocklist", "AppBlockList"),
            ("Enable_SSO_On_All_ManagedApp", "Enable_SSO_On_All_ManagedApps"), ("shiftEnd", "shiftEnds"),
            ("requiresEnrollment", "requiresEnrolment"), ("cleanupPolciy", "cleanupPolicy"), ("Tpye", "Type"),
        ] {
            #expect(ManagedConfiguration.suggestion(forUnknownKey: key) == meant, "\(key)")
            let text = "{\"sharedDeviceMode\": true, \"\(key)\": 1}"
            #expect(try warnings(text) == ["\"\(key)\" means nothing; is “\(meant)” meant?"])
        }
        for key in ["colour", "", "x", "PayloadStuff", String(repeating: "a", count: 100_000)] {
            #expect(ManagedConfiguration.suggestion(forUnknownKey: key) == nil)
        }
        #expect(try warnings(#"{"sharedDeviceMode": true, "colour": 1}"#) == ["\"colour\" means nothing"])
    }

    @Test("keys that do nothing on Linux, an absent mode, and an app that is allowed and blocked are told")
    func doubtful() throws {
        #expect(
            try warnings(#"{"sharedDeviceMode": true, "browser_sso_interaction_enabled": 1}"#)
                == ["\"browser_sso_interaction_enabled\" has no effect on Linux"]
        )
        #expect(try warnings(#"{"organization": "A"}"#) == ["\"sharedDeviceMode\" is absent: the device is personal"])
        #expect(
            try warnings(#"{"sharedDeviceMode": true, "AppAllowList": "com.a.b,com.c.d", "AppBlockList": "com.c.d"}"#)
                == ["\"AppBlockList\" has com.c.d, as AppAllowList has: it is blocked"]
        )
        #expect(
            try warnings(#"{"sharedDeviceMode": true, "cleanupPolicy": "strict", "AppAllowList": "com.a.b"}"#) == []
        )
    }
}
