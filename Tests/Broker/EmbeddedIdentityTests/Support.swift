import DeviceStorage
import Foundation
import NotifyCenterTestKit
import SharedDevice

/// A device without users, in a temporary directory.
final class TestDirectory: Sendable {
    private let temporary: TemporaryDirectory
    let database: DeviceDatabase

    init() throws {
        temporary = try TemporaryDirectory("identity-tests")
        database = try DeviceDatabase(directory: temporary.path + "/state", firstEpoch: 0)
    }

    func openAgain() throws -> DeviceDatabase {
        try DeviceDatabase(directory: temporary.path + "/state", firstEpoch: 0)
    }

    /// Whether any file of the database contains the text.
    func contains(_ text: String) throws -> Bool { try contains(bytes: Array(text.utf8)) }

    /// Whether any file of the database contains the bytes.
    func contains(bytes: [UInt8]) throws -> Bool {
        try ["", "-wal", "-shm"].contains { suffix in
            let file = URL(fileURLWithPath: database.path + suffix)
            return try Data(contentsOf: file).range(of: Data(bytes)) != nil
        }
    }

    /// Signs the account in, or out with `nil`, as the broker does.
    func signIn(_ account: Account?) throws {
        let sql = "UPDATE device SET mode = 'shared', account_identifier = ?, account_username = ?"
        try database.write("sign in") { db in try db.run(sql, account?.identifier, account?.username) }
    }
}
