import DeviceStorage
import Foundation
import Identity
import NotifyCenterTestKit
import Testing

@testable import EmbeddedIdentity

extension TemporaryDirectory {
    /// Opens the users of the device in this directory, which has none at first.
    func users() throws -> UserDirectory {
        UserDirectory(database: try DeviceDatabase(directory: state, firstEpoch: 0), passwordCost: .minimal)
    }
}

extension UserDirectory {
    func isPassword(_ text: String, of name: String) throws -> Bool {
        let stored = try #require(try candidate(for: .password(username: name, nil))?.hash)
        return try PasswordHash(stored: stored).matches(Secret(text))
    }

    /// Simulates manual changes to the database file.
    func execute(_ sql: String) throws {
        try database.write("edit the file by hand") { db in try db.execute(sql) }
    }
}
