import Basics
import DBus
import DeviceConfiguration
import DeviceStorage
import Foundation
import Glibc
import NotifyCenterTestKit
import SharedDevice
import Synchronization
import Testing

/// The files of the broker's tests.
extension TemporaryDirectory {
    convenience init() throws { try self.init("broker-tests") }

    /// A state directory that does not exist yet.
    var state: String { path + "/state" }
    var databaseFile: String { state + "/" + DeviceDatabase.fileName }

    func file(_ name: String) -> String { path + "/" + name }

    func write(_ text: String, to name: String) throws {
        try Data(text.utf8).write(to: URL(fileURLWithPath: file(name)))
    }

    /// Renames a file or directory, and replaces an existing one with the new name.
    func rename(_ name: String, to other: String) throws {
        guard Glibc.rename(file(name), file(other)) == 0 else {
            throw POSIXError(POSIXErrorCode(rawValue: errno) ?? .EIO)
        }
    }

    func contains(_ text: String) throws -> Bool { try contains(Array(text.utf8)) }

    /// Whether any file in the directory contains these bytes.
    func contains(_ bytes: [UInt8]) throws -> Bool {
        let files = FileManager.default.enumerator(atPath: path)?.compactMap { $0 as? String } ?? []
        for name in files {
            var isDirectory: ObjCBool = false
            guard FileManager.default.fileExists(atPath: file(name), isDirectory: &isDirectory), !isDirectory.boolValue
            else {
                continue
            }
            let content = try Data(contentsOf: URL(fileURLWithPath: file(name)))
            if content.range(of: Data(bytes)) != nil { return true }
        }
        return false
    }

    func expectNone(of texts: String..., sourceLocation: SourceLocation = #_sourceLocation) throws {
        for text in texts {
            let isThere = try contains(text)
            #expect(!isThere, "\(text)", sourceLocation: sourceLocation)
        }
    }
}

func mode(of path: String) -> mode_t? {
    var info = stat()
    return lstat(path, &info) == 0 ? info.st_mode & 0o7777 : nil
}

extension Account {
    static let ada = Account(identifier: "a11ce.7e4a47", username: "ada@example.com", displayName: "Ada Lovelace")
    static let grace = Account(identifier: "96ace.7e4a47", username: "grace@example.com")
}

func configuration(_ text: String) throws -> ManagedConfiguration {
    try ManagedConfiguration(json: Data(text.utf8), file: "managed")
}

func configurationError(_ text: String) -> ManagedConfigurationError? {
    do throws(ManagedConfigurationError) {
        _ = try ManagedConfiguration(json: Data(text.utf8), file: "managed")
        return nil
    } catch {
        return error
    }
}

/// A value that a test shares with its helpers: a lock that can be stored in a struct and passed on.
final class Shared<Value: Sendable>: Sendable {
    private let locked: Locked<Value>

    init(_ value: Value) { locked = Locked(value) }

    func withLock<Result: Sendable>(_ body: @Sendable (inout Value) -> Result) -> Result {
        locked.withLock { value in
            var copy = value
            defer { value = copy }
            return body(&copy)
        }
    }
}
