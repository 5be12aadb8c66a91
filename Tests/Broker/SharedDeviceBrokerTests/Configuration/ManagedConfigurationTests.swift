import DeviceConfiguration
import Foundation
import Glibc
import SharedDeviceBroker
import Testing

@Suite("Managed configuration")
struct ManagedConfigurationTests {
    private let directory: TemporaryDirectory
    private let file: ManagedConfigurationFile

    init() throws {
        directory = try TemporaryDirectory()
        file = ManagedConfigurationFile(path: directory.file("managed.json"))
    }

    private func failure(of text: String) throws -> ManagedConfigurationError? {
        try directory.write(text, to: "managed.json")
        return failure()
    }

    private func failure() -> ManagedConfigurationError? {
        do throws(ManagedConfigurationError) {
            _ = try file.load()
            return nil
        } catch {
            return error
        }
    }

    @Test("true is shared, false and an absent key are personal")
    func mode() throws {
        for (text, mode) in [
            (#"{"sharedDeviceMode": true}"#, ManagedMode.shared), (#"{"sharedDeviceMode": false}"#, .personal),
            ("{}", .personal),
        ] {
            try directory.write(text, to: "managed.json")
            let content = try file.load()
            #expect(content.mode == mode)
            #expect(content != .missing)
        }
    }

    @Test("a missing file is personal, and shows as missing")
    func missing() throws {
        #expect(try file.load() == .missing)
        #expect(try file.load().mode == .personal)
        let nowhere = ManagedConfigurationFile(path: directory.file("no/such/managed.json"))
        #expect(try nowhere.load() == .missing)
    }

    @Test("the organization is read, and keys that mean nothing are reported")
    func otherKeys() throws {
        let text =
            #"{"organization": "Contoso", "shareddevicemode": true, "sharedDeviceMode": true, "Enable_SSO": [1]}"#
        try directory.write(text, to: "managed.json")
        var wanted = ManagedConfiguration()
        wanted.sharedDeviceMode = true
        wanted.organization = "Contoso"
        wanted.unknownKeys = ["Enable_SSO", "shareddevicemode"]
        #expect(try file.load() == .present(wanted))
    }

    @Test(
        "a value of the wrong type is an error that names file, key and remedy, never a guess",
        arguments: [
            (#"{"sharedDeviceMode": "true"}"#, "sharedDeviceMode", "true or false"),
            (#"{"sharedDeviceMode": 1}"#, "sharedDeviceMode", "true or false"),
            (#"{"sharedDeviceMode": null}"#, "sharedDeviceMode", "true or false"),
            (#"{"sharedDeviceMode": [true]}"#, "sharedDeviceMode", "true or false"),
            (#"{"sharedDeviceMode": true, "organization": 7}"#, "organization", "a string"),
            (#"{"organization": null}"#, "organization", "a string"),
        ]
    )
    func wrongTypes(text: String, key: String, remedy: String) throws {
        let error = try #require(try failure(of: text))
        #expect(error.code == .wrongType)
        #expect(error.key == key)
        #expect(error.description.hasPrefix("\(file.path): \"\(key)\": "))
        #expect(error.remedy.contains(remedy))
    }

    @Test(
        "what is no JSON object is an error that names the file",
        arguments: ["", "{", #"{"sharedDeviceMode": true"#, "sharedDeviceMode = true", "[]", "true", "null", "{} {}"]
    )
    func invalidJSON(text: String) throws {
        let error = try #require(try failure(of: text))
        #expect(error.code == .invalidJSON)
        #expect(error.key == nil)
        #expect(error.description.hasPrefix("\(file.path): "))
    }

    @Test("a mistake in the form is told with its line")
    func line() throws {
        let error = try #require(try failure(of: "{\n  \"sharedDeviceMode\": true,\n  \"organization\": Contoso\n}"))
        #expect(error.message.contains("line 3"), "\(error)")
    }

    @Test(
        "a profile for iOS in the file's place is refused with the command that converts it",
        arguments: ["<?xml version=\"1.0\"?>", "\u{feff}\n <plist/>", "bplist00\u{1}", "-----BEGIN PKCS7-----\n"]
    )
    func profile(text: String) throws {
        let error = try #require(try failure(of: text))
        #expect(error.code == .profile)
        #expect(error.remedy == "run: shared-device configuration convert \(file.path)")
    }

    @Test("a signed profile, and keys inside a profile's dictionaries, are refused too")
    func signedProfile() throws {
        try Data([0x30, 0x82, 0x0A, 0x00]).write(to: URL(fileURLWithPath: file.path))
        #expect(failure()?.code == .profile)
        for key in ["ExtensionData", "PayloadContent"] {
            let error = try failure(of: #"{"organization": "A", "\#(key)": {"sharedDeviceMode": true}}"#)
            #expect(error?.code == .profile)
            #expect(error?.key == key)
        }
        let others = (0..<30).map { "\"A\($0)\": 1" }.joined(separator: ", ")
        #expect(try failure(of: "{\(others), \"PayloadContent\": {\"sharedDeviceMode\": true}}")?.code == .profile)
    }

    @Test("a file that anyone may write to decides nothing")
    func writableByAnyone() throws {
        try directory.write(#"{"sharedDeviceMode": true}"#, to: "managed.json")
        chmod(file.path, 0o666)
        let error = try #require(failure())
        #expect(error.code == .insecure)
        #expect(error.remedy.contains("chmod o-w \(file.path)"))
        chmod(file.path, 0o644)
        #expect(failure() == nil)
    }

    @Test("a directory or a FIFO in the file's place is an error, and does not hang")
    func noRegularFile() throws {
        mkfifo(file.path, 0o600)
        #expect(failure()?.code == .unreadable)
        unlink(file.path)
        mkdir(file.path, 0o700)
        #expect(failure()?.code == .unreadable)
    }

    @Test("a file of a megabyte is no configuration")
    func tooLarge() throws {
        #expect(try failure(of: "{}" + String(repeating: " ", count: 1_048_576))?.code == .tooLarge)
        #expect(try failure(of: "{}" + String(repeating: " ", count: 1_048_574)) == nil)
    }
}
