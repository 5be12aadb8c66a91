import Basics
import DeviceStorage
package import Fleet
import Glibc

/// The controller's SQLite file: devices with their last reports, and orders. For one thread at a time; blocks it.
package final class ControllerStore {
    /// The migrations from each version to the next. A released step is never edited.
    private static let steps = [
        """
        PRAGMA application_id = \(applicationIdentifier);
        CREATE TABLE fleet (id INTEGER PRIMARY KEY CHECK (id = 1), highest INTEGER NOT NULL);
        CREATE TABLE device (
            name TEXT NOT NULL PRIMARY KEY,
            listed INTEGER NOT NULL CHECK (listed IN (0, 1)),
            groups TEXT NOT NULL,
            desired INTEGER,
            desired_session INTEGER,
            desired_reason TEXT,
            report TEXT,
            reported_at REAL,
            unchanged_since REAL
        ) WITHOUT ROWID;
        CREATE TABLE fleet_order (
            number INTEGER PRIMARY KEY,
            session INTEGER,
            reason TEXT NOT NULL,
            at REAL NOT NULL,
            everybody INTEGER NOT NULL CHECK (everybody IN (0, 1))
        );
        CREATE TABLE order_device (
            number INTEGER NOT NULL, name TEXT NOT NULL, PRIMARY KEY (number, name)
        ) WITHOUT ROWID;
        """,
        "ALTER TABLE fleet_order ADD COLUMN counted TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE device ADD COLUMN left_behind INTEGER NOT NULL DEFAULT 0",
    ]
    /// "SDF1" in SQLite's header, which identifies our file.
    private static let applicationIdentifier: Int64 = 0x5344_4631
    private static let limits = JSONLimits(size: 64 << 10, depth: 8, values: 4000)

    private let connection: SQLiteConnection
    private let path: String

    /// Opens the file, and creates it if missing. A damaged, foreign or newer file stays unchanged.
    package init(directory: String) throws(FleetRefusal) {
        path = directory + "/fleet.sqlite"
        do {
            // Only its owner may read the file: the reports show at which times each device had which session.
            connection = try SQLiteConnection(path: path, .create, busyTimeout: .seconds(5))
            try connection.execute(
                "PRAGMA synchronous = FULL; PRAGMA trusted_schema = OFF; PRAGMA temp_store = MEMORY;"
            )
            try Self.prepare(connection)
        } catch {
            throw FleetRefusal("\(path) cannot be used: \(error); move it away, or name another state directory")
        }
    }

    private static func prepare(_ db: SQLiteConnection) throws {
        let version: Int = try db.value("PRAGMA user_version") ?? 0
        let isEmpty = try db.value("SELECT count(*) FROM sqlite_master") == 0
        let isOurs = try db.value("PRAGMA application_id") == applicationIdentifier
        guard isEmpty && version == 0 || isOurs else { throw FleetRefusal("it is another program's database") }
        guard version <= steps.count else { throw FleetRefusal("a newer version of this program has changed its form") }
        guard try db.value("PRAGMA quick_check(1)") == "ok" else { throw FleetRefusal("it is damaged") }
        let mode: String? = try db.value("PRAGMA journal_mode = WAL")
        guard mode == "wal" else { throw FleetRefusal("SQLite's write-ahead log does not work here") }
        guard version < steps.count else { return }
        try db.write { db in
            for step in steps[version...] { try db.execute(step) }
            // After a lost file the numbers continue from the clock (FL-2).
            try db.run("INSERT OR IGNORE INTO fleet (id, highest) VALUES (1, ?)", Int64(time(nil)))
            try db.execute("PRAGMA user_version = \(steps.count)")
        }
    }

    package func load() throws(FleetRefusal) -> ControllerState {
        do {
            return try connection.read { db in
                let highest: UInt64? = try db.value("SELECT highest FROM fleet")
                return ControllerState(
                    highest: highest ?? UInt64(time(nil)),
                    orders: try Self.orders(db),
                    devices: try Self.devices(db)
                )
            }
        } catch {
            throw FleetRefusal("\(path) cannot be read: \(error); restore it from a copy, or move it away")
        }
    }

    private static func devices(_ db: SQLiteConnection) throws -> [String: FleetDevice] {
        let rows = try db.rows("SELECT * FROM device") { row -> (String, FleetDevice)? in
            guard let name: String = row["name"] else { return nil }
            var device = FleetDevice()
            device.isListed = row["listed"] == 1
            device.groups = (row["groups"] ?? "").split(separator: " ").map(String.init)
            if let number: UInt64 = row["desired"] {
                device.desired = FleetOrder(
                    number: number,
                    session: row["desired_session"],
                    reason: row["desired_reason"] ?? ""
                )
            }
            // A report that this version cannot parse, but an older one could, comes again from the device.
            if let text: String = row["report"], let json = try? JSONValue(parsing: Array(text.utf8), limits: limits) {
                device.report = try? DeviceReport(json)
            }
            device.reportedAt = row["reported_at"]
            device.unchangedSince = row["unchanged_since"]
            device.leftBehind = row["left_behind"] ?? 0
            return (name, device)
        }
        return Dictionary(rows.compactMap { $0 }) { first, _ in first }
    }

    /// The numbers of the last orders, and of the last order for all devices, which stays in force.
    private static let kept = """
        SELECT number FROM (SELECT number FROM fleet_order ORDER BY number DESC LIMIT ?)
        UNION SELECT number FROM (SELECT number FROM fleet_order WHERE everybody = 1 ORDER BY number DESC LIMIT 1)
        """

    private static func orders(_ db: SQLiteConnection) throws -> [RecordedOrder] {
        let rows = try db.rows(
            "SELECT * FROM fleet_order WHERE number IN (\(kept)) ORDER BY number DESC",
            Int64(ControllerState.mostOrders)
        ) { row -> RecordedOrder? in
            guard let number: UInt64 = row["number"], let at: Double = row["at"] else { return nil }
            guard let counted: String = row["counted"] else {
                throw FleetRefusal("order \(number) does not say how many of its devices are only counted")
            }
            return RecordedOrder(
                order: FleetOrder(number: number, session: row["session"], reason: row["reason"] ?? ""),
                names: row["everybody"] == 1 ? nil : [],
                counted: try OrderCounts(counted),
                at: at
            )
        }
        var room = ControllerState.mostNames
        return try rows.compactMap { $0 }.map { recorded in
            var order = recorded
            if order.names == nil { return order }
            let number = Int64(order.number)
            let count: Int = try db.value("SELECT count(*) FROM order_device WHERE number = ?", number) ?? 0
            room -= count
            guard room >= 0 else {
                // From a file of a version that did not shorten orders.
                order.counted.addUnknown(UInt64(count))
                return order
            }
            let names = try db.rows("SELECT name FROM order_device WHERE number = ?", number) { $0[0] as String? }
            return RecordedOrder(
                order: order.order,
                names: names.compactMap(\.self),
                counted: order.counted,
                at: order.at
            )
        }.reversed()
    }

    // MARK: Writing

    /// Stores a change durably before it returns. It must precede the publication of an order.
    package func store(_ record: ControllerRecord, devices: [String: FleetDevice]) throws(FleetRefusal) {
        try write { db in
            switch record {
            case .listing(let names):
                for name in names {
                    if let device = devices[name] {
                        try Self.save(name, device, db)
                    } else {
                        try db.run("DELETE FROM device WHERE name = ?", name)
                    }
                }
            case .order(let recorded, let shortened):
                let number = Int64(recorded.number)
                try db.run("UPDATE fleet SET highest = ?", number)
                try db.run(
                    "INSERT INTO fleet_order (number, session, reason, at, everybody) VALUES (?, ?, ?, ?, ?)",
                    number,
                    recorded.order.session.map { Int64($0) },
                    recorded.order.reason,
                    recorded.at,
                    Int64(recorded.names == nil ? 1 : 0)
                )
                // Older orders are not visible, and their device rows would let the file grow.
                let old = "SELECT number FROM fleet_order WHERE number NOT IN (\(Self.kept))"
                for table in ["order_device", "fleet_order"] {
                    try db.run("DELETE FROM \(table) WHERE number IN (\(old))", Int64(ControllerState.mostOrders))
                }
                for order in shortened {
                    let number = Int64(order.number)
                    try db.run("DELETE FROM order_device WHERE number = ?", number)
                    try db.run("UPDATE fleet_order SET counted = ? WHERE number = ?", order.counted.text, number)
                    try Self.saveNames(of: order, db)
                }
                guard let names = recorded.names else { return }
                try Self.saveNames(of: recorded, db)
                for name in names { if let device = devices[name] { try Self.save(name, device, db) } }
            }
        }
    }

    private static func saveNames(of order: RecordedOrder, _ db: SQLiteConnection) throws {
        for name in order.names ?? [] {
            try db.run("INSERT INTO order_device (number, name) VALUES (?, ?)", Int64(order.number), name)
        }
    }

    package func store(_ devices: [(String, FleetDevice)]) throws(FleetRefusal) {
        try write { db in for (name, device) in devices { try Self.save(name, device, db) } }
    }

    private func write(_ body: (SQLiteConnection) throws -> Void) throws(FleetRefusal) {
        do {
            try connection.write(body)
        } catch {
            throw FleetRefusal("\(path) cannot be written: \(error); free some space, or let this user write it")
        }
    }

    private static func save(_ name: String, _ device: FleetDevice, _ db: SQLiteConnection) throws {
        try db.run(
            """
            INSERT OR REPLACE INTO device
                (name, listed, groups, desired, desired_session, desired_reason, report, reported_at, unchanged_since, left_behind)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
            """,
            name,
            Int64(device.isListed ? 1 : 0),
            device.groups.joined(separator: " "),
            device.desired.map { Int64($0.number) },
            device.desired?.session.map { Int64($0) },
            device.desired?.reason,
            device.report?.json.text,
            device.reportedAt,
            device.unchangedSince,
            device.leftBehind
        )
    }
}
