import DeviceConfiguration
import Foundation
import Testing

@Suite("Converting an iOS profile to the broker's configuration")
struct ConvertedProfileTests {
    private let extensionPayload: [String: Any] = [
        "PayloadType": "com.apple.extensiblesso", "PayloadUUID": "1", "PayloadVersion": 1, "PayloadIdentifier": "a",
        "Type": "Redirect", "ExtensionIdentifier": "com.microsoft.azureauthenticator.ssoextension",
        "ExtensionData": ["sharedDeviceMode": true, "AppAllowList": "com.a.b"],
    ]

    private func profile(_ payloads: [String: Any]...) throws -> Data {
        try binaryPlist(["PayloadType": "Configuration", "PayloadVersion": 1, "PayloadContent": payloads])
    }

    @Test("keys of an iOS profile are converted, or reported if for iOS only or unknown")
    func intune() throws {
        let profile = try convert(fixture("shared-device.mobileconfig"))
        #expect(String(decoding: profile.json, as: UTF8.self) == "{\n  \"sharedDeviceMode\" : true\n}")
        let onlyIOS = ["ExtensionIdentifier", "Type", "URLs"].map { "\"\($0)\" means something on iOS only" }
        #expect(profile.omissions == onlyIOS)
        let unknown = try convert(binaryPlist(["sharedDeviceMode": true, "AppAlowList": "a.b", "colour": 1]))
        let misspelt = "\"AppAlowList\" means nothing; is “AppAllowList” meant?"
        #expect(unknown.omissions == [misspelt, "\"colour\" means nothing"])
    }

    @Test("all keys are read alike from XML, binary and ExtensionData")
    func everyKey() throws {
        var keys: [String: Any] = [:]
        for text in [ConfigurationKeyTests.everyKey, OrganisationSettingsTests.everyKey] {
            let more = try #require(JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any])
            keys.merge(more) { $1 }
        }
        #expect(Set(keys.keys) == Set(ManagedConfiguration.keyNames))
        let wanted = try ManagedConfiguration(json: JSONSerialization.data(withJSONObject: keys), file: "json")
        let xml = try PropertyListSerialization.data(fromPropertyList: keys, format: .xml, options: 0)
        for content in [xml, try binaryPlist(keys), try binaryPlist(["ExtensionData": keys])] {
            let profile = try convert(content)
            #expect(profile.configuration == wanted && profile.omissions == [])
            #expect(try ManagedConfiguration(json: profile.json, file: "json") == wanted)
        }
    }

    @Test("one payload, its ExtensionData or a bare app configuration is enough")
    func forms() throws {
        let (shared, dict) = (["sharedDeviceMode": true], "<dict><key>sharedDeviceMode</key><true/></dict>")
        let app: [String: Any] = ["PayloadType": "com.apple.app.managed", "Configuration": shared]
        let contents: [Data] = [
            Data("\u{feff}\n  \(plistXML(dict))".utf8), Data("<plist>\(dict)</plist>".utf8), try binaryPlist(shared),
            try binaryPlist(app), try profile(app), try profile(shared),
            try profile(["PayloadType": "com.apple.app.managed", "sharedDeviceMode": true]),
            try profile(["PayloadType": "com.apple.configuration.app.managed", "AppConfig": shared]),
            try profile(["PayloadType": "com.example.settings", "Configuration": shared]),
        ]
        for (number, content) in contents.enumerated() {
            let converted = try convert(content)
            #expect(converted.configuration.mode == .shared && converted.omissions == [], "content \(number)")
        }
        for content in [try binaryPlist(extensionPayload), try profile(extensionPayload)] {
            let configuration = try convert(content).configuration
            #expect(configuration.mode == .shared && configuration.appLists.allowed == ["com.a.b"])
        }
    }

    @Test("an unrelated payload is skipped with a warning; an unusable one is an error")
    func otherPayloads() throws {
        let kerberos: [String: Any] = [
            "PayloadType": "com.apple.extensiblesso", "Type": "Credential",
            "ExtensionIdentifier": "com.apple.AppSSOKerberos",
        ]
        let converted = try convert(profile(["PayloadType": "com.apple.wifi.managed"], kerberos, extensionPayload))
        #expect(converted.configuration.mode == .shared)
        let messages = converted.omissions.filter { $0.contains("something else") }
        let names = ["PayloadContent[0] (com.apple.wifi.managed)", "PayloadContent[1] (com.apple.extensiblesso)"]
        #expect(messages.count == 2 && zip(messages, names).allSatisfy { $0.contains($1) }, "\(messages)")
        let contents = [
            try profile(), try profile(["PayloadType": "com.apple.wifi.managed"]),
            try profile(extensionPayload, extensionPayload),
            try binaryPlist(["PayloadContent": [extensionPayload, "x"]]),
        ]
        let errors = try contents.map { content in try #require(conversionError(content)) }
        #expect(errors.map(\.code) == [.invalidValue, .invalidValue, .contradiction, .wrongType])
        let places: [String?] = ["PayloadContent", "PayloadContent", "PayloadContent[1]", "PayloadContent[1]"]
        #expect(errors.map(\.key) == places)
        #expect(errors.prefix(2).allSatisfy { $0.message.contains("com.apple.extensiblesso") })
    }
}
