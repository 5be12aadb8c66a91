import Foundation
import SharedDeviceBroker
import Testing

@Suite("Mistakes in the managed configuration")
struct ConfigurationErrorTests {
    private struct Mistake {
        let key: String
        let json: String
        let code: ManagedConfigurationError.Code
        let remedy: String
    }

    private static let booleans = [
        "sharedDeviceMode", "requiresEnrolment", "requiresJoin", "signOutOnScreenLock", "signOutOnLogout",
    ]
    private static let flags = [
        "Enable_SSO_On_All_ManagedApps", "browser_sso_interaction_enabled", "disable_explicit_app_prompt",
        "disable_explicit_app_prompt_and_autologin", "disable_explicit_native_app_prompt",
        "disable_explicit_native_app_prompt_and_autologin", "disable_inapp_sso_signin", "admin_debug_mode_enabled",
    ]
    private static let strings = [
        "organization", "tenantIdentifier", "cleanupPolicy", "endSessionURL", "AppAllowList", "AppBlockList",
        "AppPrefixAllowList", "AppCookieSSOAllowList", "Type", "ExtensionIdentifier", "TeamIdentifier",
        "device_registration",
    ]
    private static let numbers = ["cleanupTimeout", "inactivityTimeout"]
    private static let arrays = ["shiftEnds", "URLs"]

    private static let mistakes: [Mistake] =
        booleans.flatMap { key in
            ["1", "0", "\"true\"", "null", "[true]"].map {
                Mistake(key: key, json: $0, code: .wrongType, remedy: "true or false")
            }
        }
        + flags.flatMap { key in
            [
                Mistake(key: key, json: "\"1\"", code: .wrongType, remedy: "0 or 1"),
                Mistake(key: key, json: "2", code: .invalidValue, remedy: "0 or 1"),
                Mistake(key: key, json: "-1", code: .invalidValue, remedy: "0 or 1"),
                Mistake(key: key, json: "0.5", code: .wrongType, remedy: "0 or 1"),
            ]
        }
        + strings.flatMap { key in
            ["7", "null", "[]", "true"].map { Mistake(key: key, json: $0, code: .wrongType, remedy: "a string") }
        }
        + ["tenantIdentifier", "ExtensionIdentifier", "TeamIdentifier", "device_registration", "AppAllowList"].map {
            Mistake(key: $0, json: "\"  \"", code: .invalidValue, remedy: "leave the key out")
        }
        + numbers.flatMap { key in
            [
                Mistake(key: key, json: "\"30\"", code: .wrongType, remedy: "a number"),
                Mistake(key: key, json: "-1", code: .invalidValue, remedy: "a number of seconds"),
                Mistake(key: key, json: "1e300", code: .invalidValue, remedy: "at most a year"),
                Mistake(key: key, json: "9223372036854775807", code: .invalidValue, remedy: "at most a year"),
                Mistake(key: key, json: "true", code: .wrongType, remedy: "a number"),
            ]
        }
        + arrays.flatMap { key in
            ["\"06:00\"", "[6]", "[null]", "{}"].map {
                Mistake(key: key, json: $0, code: .wrongType, remedy: "an array of strings")
            }
        }
        + ["[\"6:00\"]", "[\"24:00\"]", "[\"12:60\"]", "[\"0600\"]", "[\"-1:00\"]", "[\"\"]", "[\"06:00:00\"]"].map {
            Mistake(key: "shiftEnds", json: $0, code: .invalidValue, remedy: "HH:MM")
        }
        + [
            "[\"http://login.example.com\"]", "[\"login.example.com\"]", "[\"\"]",
            "[\"https://a.example\", \"https://\"]",
            "[\"https://a.example/?x=1\"]", "[\"https://a.example/#x\"]", "[\"https://me:secret@a.example\"]",
        ].map { Mistake(key: "URLs", json: $0, code: .invalidValue, remedy: "https://login.example.com") }
        + ["\"a,,b\"", "\"com.a.b,\"", "\",com.a.b\""].map {
            Mistake(key: "AppPrefixAllowList", json: $0, code: .invalidValue, remedy: "one comma between each two")
        }
        + ["\"com.a.b com.c.d\"", "\"com.a.b;\u{e9}\""].map {
            Mistake(key: "AppBlockList", json: $0, code: .invalidValue, remedy: "with commas between")
        }
        + [
            Mistake(key: "inactivityTimeout", json: "0", code: .invalidValue, remedy: "more than 0"),
            Mistake(key: "cleanupPolicy", json: "\"Strict\"", code: .invalidValue, remedy: "advisory or strict"),
            Mistake(key: "Type", json: "\"Credential\"", code: .invalidValue, remedy: "Redirect"),
            Mistake(key: "ExtensionData", json: "[]", code: .wrongType, remedy: "an object"),
        ]

    @Test("each names the file, the key and the remedy, flat and in ExtensionData")
    func everyMistake() throws {
        for mistake in Self.mistakes {
            let flat = "{\"\(mistake.key)\": \(mistake.json)}"
            let nested = mistake.key == "ExtensionData" ? [] : ["{\"ExtensionData\": \(flat)}"]
            for text in [flat] + nested {
                let error = try #require(configurationError(text), "\(text)")
                #expect(error.code == mistake.code, "\(text)")
                #expect(error.key == mistake.key, "\(text)")
                #expect(error.remedy.contains(mistake.remedy), "\(text): \(error)")
                #expect(error.description.hasPrefix("managed: \"\(mistake.key)\": "))
            }
        }
    }

    @Test(
        "in a property list the types are as strict, and the remedy is in its own words",
        arguments: [
            ("sharedDeviceMode", "<integer>1</integer>", "<true/>"),
            ("sharedDeviceMode", "<string>true</string>", "<true/>"),
            ("sharedDeviceMode", "<real>1</real>", "<true/>"), ("requiresJoin", "<integer>0</integer>", "<true/>"),
            ("disable_inapp_sso_signin", "<string>1</string>", "<integer>"), ("organization", "<true/>", "<string>"),
            ("AppAllowList", "<array><string>com.a.b</string></array>", "<string>"),
            ("cleanupTimeout", "<date>2020-01-01T00:00:00Z</date>", "<real>"),
            ("URLs", "<string>https://login.example.com</string>", "<array>"),
            ("ExtensionData", "<data>AAAA</data>", "<dict>"),
            ("shiftEnds", "<array><integer>6</integer></array>", "<array>"),
        ]
    )
    func propertyListTypes(key: String, element: String, remedy: String) throws {
        let xml = plistXML("<dict><key>\(key)</key>\(element)</dict>")
        let value = try PropertyListSerialization.propertyList(from: Data(xml.utf8), format: nil)
        for content in [Data(xml.utf8), try binaryPlist(try #require(value as? [String: Any]))] {
            let error = try #require(configurationError(content))
            #expect(error.code == .wrongType)
            #expect(error.key == key)
            #expect(error.remedy.contains(remedy), "\(error)")
        }
    }

    @Test("two places that disagree are an error that says what each says, in a profile and in JSON")
    func disagreement() throws {
        let text = String(decoding: try fixture("shared-device.mobileconfig"), as: UTF8.self)
        let position = try #require(text.range(of: "<true/>", options: .backwards))
        let error = try #require(configurationError(text.replacingCharacters(in: position, with: "<false/>")))
        #expect(error.code == .contradiction)
        #expect(error.key == "sharedDeviceMode")
        #expect(error.message.contains("PayloadContent[0].ExtensionData says true"))
        #expect(error.message.contains("PayloadContent[1] says false"))
        #expect(error.remedy.contains("the same value"))

        let json = configurationError(#"{"organization": "A", "ExtensionData": {"organization": "B"}}"#)
        #expect(json?.code == .contradiction)
        #expect(configurationError(#"{"organization": "A", "ExtensionData": {"organization": "A"}}"#) == nil)
    }

    @Test("a signed profile is told apart, with the command that unwraps it", arguments: ["der", "pem"])
    func signed(encoding: String) throws {
        let contents =
            encoding == "pem"
            ? [Data("-----BEGIN PKCS7-----\nMIAG\n".utf8)]
            : [Data([0x30, 0x80, 0x06, 0x09]), Data([0x30, 0x82, 0x0A, 0x00, 0x06]), Data([0x30, 0x83])]
        for content in contents {
            let error = try #require(configurationError(content))
            #expect(error.code == .signed)
            #expect(error.remedy.contains("openssl smime -verify -noverify -inform \(encoding) -in managed"))
        }
    }

    @Test("an encrypted profile is told apart")
    func encrypted() throws {
        for content in [
            try binaryPlist(["PayloadContent": Data([1, 2, 3])]),
            try binaryPlist(["EncryptedPayloadContent": Data([1])]),
        ] {
            let error = try #require(configurationError(content))
            #expect(error.code == .signed)
            #expect(error.remedy.contains("without encryption"))
        }
    }

    @Test(
        "what looks like a property list and is none is an error",
        arguments: [
            "<", "<html></html>", "<plist>", plistXML(""), plistXML("<dict><key>a</key></dict>"),
            plistXML("<array/>"), plistXML("<true/>"), plistXML("<dict><key>a</key><nothing/></dict>"), "bplist00",
            "bplist00xx",
        ]
    )
    func noPropertyList(text: String) throws {
        let error = try #require(configurationError(text))
        #expect(error.code == .invalidPropertyList)
        #expect(error.key == nil)
        #expect(error.remedy.contains("plutil -lint managed"))
    }

    @Test(
        "a property list that is nested a hundred thousand deep is an error, also behind comments that pretend otherwise"
    )
    func nesting() throws {
        for level in ["<array>", "<dict><key>a</key>", "<array><!-- </array> -->", "<array ><![CDATA[</array>]]>"] {
            let error = configurationError("<plist><dict><key>a</key>" + String(repeating: level, count: 20_000))
            #expect(error?.code == .invalidPropertyList, "\(level)")
            #expect(error?.message.contains("nested too deeply") == true, "\(level)")
        }
        // Width is no depth.
        let wide = String(repeating: "<array/><dict></dict><!--<dict>-->", count: 1000)
        #expect(configurationError(plistXML("<dict><key>a</key><array>\(wide)</array></dict>")) == nil)
        #expect(configurationError("{\"a\":" + String(repeating: "[", count: 100_000))?.code == .invalidJSON)
    }

    @Test("a binary property list that contains itself, or one array a million times, is an error and no endless work")
    func binaryLoops() throws {
        /// One byte for each reference; offsets of two bytes.
        func binary(_ objects: [[UInt8]]) -> Data {
            var bytes = Array("bplist00".utf8)
            var offsets: [UInt8] = []
            for object in objects {
                offsets += [UInt8(bytes.count >> 8), UInt8(bytes.count & 255)]
                bytes += object
            }
            let table = bytes.count
            let trailer: [UInt8] =
                [0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, UInt8(objects.count)]
                + [UInt8](repeating: 0, count: 14) + [UInt8(table >> 8), UInt8(table & 255)]
            return Data(bytes + offsets + trailer)
        }
        let head: [[UInt8]] = [[0xD1, 1, 2], [0x51, UInt8(ascii: "a")]]
        #expect(configurationError(binary(head + [[0xA1, 2]]))?.code == .invalidPropertyList)
        // Four levels of two hundred: 1.6 thousand million values in all.
        let levels = (3...6).map { next in [0xAF, 0x10, 200] + [UInt8](repeating: UInt8(next), count: 200) }
        #expect(configurationError(binary(head + levels + [[0x51, UInt8(ascii: "b")]]))?.code == .invalidPropertyList)
        #expect(configurationError(binary(head + [[0xA1, 3], [0x51, UInt8(ascii: "b")]])) == nil)
    }

    @Test("a damaged binary property list is an error or another configuration, and ends no process")
    func damagedBinary() throws {
        let content = try binaryPlist(["sharedDeviceMode": true, "URLs": ["https://a.example"], "cleanupTimeout": 2.5])
        for position in content.indices {
            for value: UInt8 in [0x00, 0xFF, content[position] ^ 0x01, content[position] ^ 0x10] {
                var damaged = content
                damaged[position] = value
                _ = configurationError(damaged)
            }
            _ = configurationError(content[..<position])
        }
    }
}
