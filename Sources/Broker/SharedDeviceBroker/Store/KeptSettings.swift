import BrokerCore
package import DeviceStorage
package import FoundationEssentials

/// The last valid content of the administrator's files. A start applies it if the files have become invalid.
package struct KeptSettings: Sendable, Equatable {
    /// The managed configuration, as JSON; `nil` keeps the stored one.
    package var configuration: Data?
    /// All app manifests, by file name, those of packages by path; `nil` keeps the stored ones.
    package var manifests: [String: Data]?

    static func read(_ db: SQLiteConnection, into content: inout StoredContent) throws {
        let configuration: [UInt8]? = try db.value("SELECT content FROM configuration WHERE id = 1")
        content.configuration = configuration.map { Data($0) }
        let manifests = try db.rows("SELECT file, content FROM manifest") { row -> (String, Data)? in
            guard let file: String = row["file"], let content: [UInt8] = row["content"] else { return nil }
            return (file, Data(content))
        }
        content.manifests = Dictionary(manifests.compactMap(\.self)) { $1 }
    }

    fileprivate func write(to db: SQLiteConnection) throws {
        if let configuration {
            try db.run("INSERT OR REPLACE INTO configuration (id, content) VALUES (1, ?)", [UInt8](configuration))
        }
        guard let manifests else { return }
        try db.run("DELETE FROM manifest")
        for (file, content) in manifests {
            try db.run("INSERT INTO manifest (file, content) VALUES (?, ?)", file, [UInt8](content))
        }
    }
}

extension DeviceStore {
    /// Stores valid settings.
    package func keep(_ settings: KeptSettings) throws(StoreError) {
        try database.store("keep the administrator's settings") { db in try settings.write(to: db) }
    }
}
