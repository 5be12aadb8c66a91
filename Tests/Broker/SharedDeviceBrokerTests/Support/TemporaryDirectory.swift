import Foundation
import Glibc
import SharedDevice
import SharedDeviceBroker

/// A directory of a test's own, removed with its content when the last reference goes.
final class TemporaryDirectory: Sendable {
    let path: String

    init() throws {
        let template = NSTemporaryDirectory() + "/broker-tests-XXXXXX"
        var buffer = Array(template.utf8CString)
        guard mkdtemp(&buffer) != nil else { throw POSIXError(POSIXErrorCode(rawValue: errno) ?? .EIO) }
        path = String(decoding: buffer.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }

    deinit { try? FileManager.default.removeItem(atPath: path) }

    /// A state directory in this one, which does not exist yet.
    var state: String { path + "/state" }
    var databaseFile: String { state + "/" + DeviceDatabase.fileName }

    func file(_ name: String) -> String { path + "/" + name }

    func write(_ text: String, to name: String) throws {
        try Data(text.utf8).write(to: URL(fileURLWithPath: file(name)))
    }

    /// Whether any file below holds these bytes.
    func contains(_ text: String) throws -> Bool {
        let files = FileManager.default.enumerator(atPath: path)?.compactMap { $0 as? String } ?? []
        for name in files {
            var isDirectory: ObjCBool = false
            guard FileManager.default.fileExists(atPath: file(name), isDirectory: &isDirectory), !isDirectory.boolValue
            else {
                continue
            }
            let content = try Data(contentsOf: URL(fileURLWithPath: file(name)))
            if content.range(of: Data(text.utf8)) != nil { return true }
        }
        return false
    }
}

/// The permission bits of the file at `path`.
func mode(of path: String) -> mode_t? {
    var info = stat()
    return lstat(path, &info) == 0 ? info.st_mode & 0o7777 : nil
}

extension Account {
    static let ada = Account(identifier: "a11ce.7e4a47", username: "ada@example.com", displayName: "Ada Lovelace")
    static let grace = Account(identifier: "96ace.7e4a47", username: "grace@example.com")
}
