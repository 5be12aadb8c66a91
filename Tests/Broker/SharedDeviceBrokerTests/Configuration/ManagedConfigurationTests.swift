import DeviceConfiguration
import Foundation
import Glibc
import NotifyCenterTestKit
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

    @Test("true is shared; false, an absent key and a missing file are personal")
    func mode() throws {
        #expect(try file.load() == .missing && file.load().mode == .personal)
        let nowhere = ManagedConfigurationFile(path: directory.file("no/such/managed.json"))
        #expect(try nowhere.load() == .missing)
        for (text, mode) in [
            (#"{"sharedDeviceMode": true}"#, ManagedMode.shared), (#"{"sharedDeviceMode": false}"#, .personal),
            ("{}", .personal),
        ] {
            try directory.write(text, to: "managed.json")
            let content = try file.load()
            #expect(content.mode == mode && content != .missing)
        }
    }

    @Test("content that is not a JSON object is an error with the file's name")
    func invalidJSON() throws {
        for text in ["", "sharedDeviceMode = true", "[]", "true", "null", "{} {}"] {
            let error = try #require(try failure(of: text), "\(text)")
            #expect(error.code == .invalidJSON && error.key == nil && error.description.hasPrefix("\(file.path): "))
        }
    }

    @Test("an iOS profile, signed or not, is refused with the command that converts it")
    func profile() throws {
        let remedy = "run: shared-device configuration convert \(file.path)"
        for text in ["<?xml version=\"1.0\"?>", "\u{feff}\n <plist/>", "bplist00\u{1}", "-----BEGIN PKCS7-----\n"] {
            let error = try failure(of: text)
            #expect(error?.code == .profile && error?.remedy == remedy, "\(text)")
        }
        try Data([0x30, 0x82, 0x0A, 0x00]).write(to: URL(fileURLWithPath: file.path))
        #expect(failure()?.code == .profile)
        for key in ["ExtensionData", "PayloadContent"] {
            let error = try failure(of: #"{"organization": "A", "\#(key)": {"sharedDeviceMode": true}}"#)
            #expect(error?.code == .profile && error?.key == key)
        }
        let others = (0..<30).map { "\"A\($0)\": 1" }.joined(separator: ", ")
        #expect(try failure(of: "{\(others), \"PayloadContent\": {\"sharedDeviceMode\": true}}")?.code == .profile)
    }

    @Test("a world-writable file, a directory, a FIFO or more than a megabyte is refused")
    func refused() throws {
        #expect(try failure(of: "{}" + String(repeating: " ", count: 1_048_576))?.code == .tooLarge)
        #expect(try failure(of: "{}" + String(repeating: " ", count: 1_048_574)) == nil)
        chmod(file.path, 0o666)
        let error = try #require(failure())
        #expect(error.code == .insecure && error.remedy.contains("chmod o-w \(file.path)"))
        for make in [{ mkfifo($0, 0o600) }, { mkdir($0, 0o700) }] as [(String) -> CInt] {
            #expect(remove(file.path) == 0 && make(file.path) == 0)
            #expect(failure()?.code == .unreadable)
        }
    }
}
