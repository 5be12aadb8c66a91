import DeviceConfiguration
import Foundation
import Testing

@Suite("Profiles that cannot be converted")
struct ProfileErrorTests {
    @Test(
        "a value of the wrong type is an error with key and remedy",
        arguments: [
            ("sharedDeviceMode", "<integer>1</integer>", "true or false"),
            ("sharedDeviceMode", "<string>true</string>", "true or false"),
            ("sharedDeviceMode", "<real>1</real>", "true or false"),
            ("requiresJoin", "<integer>0</integer>", "true or false"),
            ("organization", "<true/>", "a string"),
            ("AppAllowList", "<array><string>com.a.b</string></array>", "a string"),
            ("cleanupTimeout", "<date>2020-01-01T00:00:00Z</date>", "a number"),
            ("ExtensionData", "<data>AAAA</data>", "<dict>"),
            ("shiftEnds", "<array><integer>6</integer></array>", "an array"),
        ]
    )
    func propertyListTypes(key: String, element: String, remedy: String) throws {
        let xml = plistXML("<dict><key>\(key)</key>\(element)</dict>")
        let value = try PropertyListSerialization.propertyList(from: Data(xml.utf8), format: nil)
        for content in [Data(xml.utf8), try binaryPlist(try #require(value as? [String: Any]))] {
            let error = try #require(conversionError(content))
            #expect(error.code == .wrongType && error.key == key && error.remedy.contains(remedy), "\(error)")
        }
    }

    @Test("two contradicting values are an error with both places")
    func disagreement() throws {
        let text = String(decoding: try fixture("shared-device.mobileconfig"), as: UTF8.self)
        let position = try #require(text.range(of: "<true/>", options: .backwards))
        let error = try #require(conversionError(text.replacingCharacters(in: position, with: "<false/>")))
        #expect(error.code == .contradiction && error.key == "sharedDeviceMode")
        #expect(error.message.contains("PayloadContent[0].ExtensionData says true"))
        #expect(error.message.contains("PayloadContent[1] says false") && error.remedy.contains("the same value"))
    }

    @Test("a signed, encrypted or invalid profile is an error with its remedy")
    func signed() throws {
        let invalid = [
            "<", "<html></html>", "<plist>", plistXML(""), plistXML("<dict><key>a</key></dict>"),
            plistXML("<array/>"), plistXML("<true/>"), plistXML("<dict><key>a</key><nothing/></dict>"), "bplist00",
            "bplist00xx",
        ]
        let unwrap = "openssl smime -verify -noverify -inform"
        for (content, remedy) in [
            (Data("-----BEGIN PKCS7-----\nMIAG\n".utf8), "\(unwrap) pem -in managed"),
            (Data([0x30, 0x80, 0x06, 0x09]), "\(unwrap) der -in managed"),
            (Data([0x30, 0x82, 0x0A, 0x00, 0x06]), "\(unwrap) der -in managed"),
            (Data([0x30, 0x83]), "\(unwrap) der -in managed"),
            (try binaryPlist(["PayloadContent": Data([1, 2, 3])]), "without encryption"),
            (try binaryPlist(["EncryptedPayloadContent": Data([1])]), "without encryption"),
        ] + invalid.map({ (Data($0.utf8), "plutil -lint managed") }) {
            let text = String(decoding: content, as: UTF8.self)
            let error = try #require(conversionError(content), "\(text)")
            #expect(error.code == .profile && error.remedy.contains(remedy), "\(text): \(error)")
            #expect((error.key == nil) == (remedy != "without encryption"), "\(text): \(error)")
        }
    }

    @Test("a property list too deep, cyclic or too large to expand is an error")
    func nesting() throws {
        for level in ["<array>", "<dict><key>a</key>", "<array><!-- </array> -->", "<array ><![CDATA[</array>]]>"] {
            let error = conversionError("<plist><dict><key>a</key>" + String(repeating: level, count: 20_000))
            #expect(error?.code == .profile && error?.message.contains("nested too deeply") == true, "\(level)")
        }
        // Forms whose depth is not measured are not parsed.
        #expect(conversionError("{a = " + String(repeating: "(", count: 100_000))?.code == .profile)
        let text = "<plist><dict><key>a</key>" + String(repeating: "<array>", count: 20_000)
        #expect(try conversionError(#require(text.data(using: .utf16)))?.code == .profile)
        // A wide property list is not a deep one.
        let wide = String(repeating: "<array/><dict></dict><!--<dict>-->", count: 1000)
        #expect(conversionError(plistXML("<dict><key>a</key><array>\(wide)</array></dict>")) == nil)
        /// Makes a binary property list of these objects, with references of one byte and offsets of two.
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
        #expect(conversionError(binary(head + [[0xA1, 2]]))?.code == .profile)
        // Four levels of two hundred references: 1.6 billion values in all.
        let levels = (3...6).map { next in [0xAF, 0x10, 200] + [UInt8](repeating: UInt8(next), count: 200) }
        #expect(conversionError(binary(head + levels + [[0x51, UInt8(ascii: "b")]]))?.code == .profile)
        #expect(conversionError(binary(head + [[0xA1, 3], [0x51, UInt8(ascii: "b")]])) == nil)
    }

    @Test("a damaged binary property list does not crash")
    func damagedBinary() throws {
        let content = try binaryPlist(["sharedDeviceMode": true, "URLs": ["https://a.example"], "cleanupTimeout": 2.5])
        for position in content.indices {
            for value: UInt8 in [0x00, 0xFF, content[position] ^ 0x01, content[position] ^ 0x10] {
                var damaged = content
                damaged[position] = value
                _ = conversionError(damaged)
            }
            _ = conversionError(content[..<position])
        }
    }
}
