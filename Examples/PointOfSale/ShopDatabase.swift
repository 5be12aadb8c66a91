import DeviceStorage

/// The shop's SQLite file: the products, which stay, and each associate's orders and customers, which are deleted with
/// the associate's data.
///
/// Calls block until SQLite is done. Only the workspace uses it, from one thread at a time.
final class ShopDatabase {
    private let connection: SQLiteConnection

    init(path: String) throws {
        connection = try SQLiteConnection(path: path, .create, busyTimeout: .seconds(2))
        // SQLite overwrites deleted rows, and copies no row into a temporary file.
        try connection.execute(
            """
            PRAGMA foreign_keys = ON;
            PRAGMA secure_delete = ON;
            PRAGMA temp_store = MEMORY;
            PRAGMA journal_mode = WAL;
            """
        )
        try connection.write { db in
            guard try db.value("PRAGMA user_version") == 0 else { return }
            try db.execute(Self.schema)
            for (code, name, price) in Self.catalogue {
                try db.run("INSERT INTO product (code, name, price) VALUES (?, ?, ?)", code, name, price)
            }
        }
    }

    private static let schema = """
        PRAGMA user_version = 1;
        CREATE TABLE product (code TEXT PRIMARY KEY, name TEXT NOT NULL, price INTEGER NOT NULL);
        CREATE TABLE customer (
            id INTEGER PRIMARY KEY, account TEXT NOT NULL, name TEXT NOT NULL, remark TEXT NOT NULL
        );
        CREATE INDEX customerOfAccount ON customer (account, name);
        CREATE TABLE customerOrder (
            id INTEGER PRIMARY KEY, account TEXT NOT NULL, customerId INTEGER NOT NULL REFERENCES customer,
            total INTEGER NOT NULL, soldBy TEXT NOT NULL
        );
        CREATE INDEX orderOfAccount ON customerOrder (account);
        CREATE TABLE orderLine (
            orderId INTEGER NOT NULL REFERENCES customerOrder ON DELETE CASCADE,
            productCode TEXT NOT NULL REFERENCES product, quantity INTEGER NOT NULL,
            PRIMARY KEY (orderId, productCode)
        );
        CREATE TABLE parkedOrder (account TEXT PRIMARY KEY, saves INTEGER NOT NULL, remark TEXT NOT NULL);
        """

    private static let catalogue = [
        ("B-001", "Hiking boots", 12_900), ("B-002", "Rain jacket", 8_950), ("B-003", "Wool socks", 1_490),
        ("B-004", "Head torch", 3_495), ("B-005", "Water bottle", 1_995), ("B-006", "Trail map", 1_250),
    ]

    // MARK: Reading

    struct Sales: Sendable {
        var orders: [Order]
        var parked: ParkedOrder?
        var products: Int
    }

    func sales(of account: String) throws -> Sales {
        try connection.read { db in
            Sales(
                orders: try db.rows(
                    "SELECT id, total, soldBy FROM customerOrder WHERE account = ? ORDER BY id",
                    account
                ) { row in Order(id: row["id"] ?? 0, total: row["total"] ?? 0, soldBy: row["soldBy"] ?? "") },
                parked: try db.row("SELECT saves, remark FROM parkedOrder WHERE account = ?", account) { row in
                    ParkedOrder(account: account, saves: row["saves"] ?? 0, remark: row["remark"] ?? "")
                },
                products: try db.value("SELECT count(*) FROM product") ?? 0
            )
        }
    }

    func products() throws -> [Product] {
        try connection.rows("SELECT code, name, price FROM product ORDER BY code") { row in
            Product(code: row["code"] ?? "", name: row["name"] ?? "", price: row["price"] ?? 0)
        }
    }

    // MARK: Writing

    /// Stores a paid order of the associate with this account.
    func book(_ cart: Cart, for customer: String, of account: String, soldBy: String) throws {
        try connection.write { db in
            let customerId: Int64? = try db.value(
                "INSERT INTO customer (account, name, remark) VALUES (?, ?, ?) RETURNING id",
                account,
                customer,
                "\(customer) is a customer of \(soldBy)"
            )
            let orderId: Int64? = try db.value(
                "INSERT INTO customerOrder (account, customerId, total, soldBy) VALUES (?, ?, ?, ?) RETURNING id",
                account,
                customerId,
                cart.total,
                soldBy
            )
            for line in cart.lines {
                try db.run(
                    "INSERT INTO orderLine (orderId, productCode, quantity) VALUES (?, ?, ?)",
                    orderId,
                    line.product.code,
                    line.quantity
                )
            }
        }
    }

    func park(_ order: ParkedOrder) throws {
        try connection.run(
            "INSERT OR REPLACE INTO parkedOrder (account, saves, remark) VALUES (?, ?, ?)",
            order.account,
            order.saves,
            order.remark
        )
    }

    /// Deletes all data of the account, so that no byte of it is left in the file, its free pages or its write-ahead
    /// log. Returns the number of rows.
    ///
    /// All steps run even if there are no rows: an earlier attempt may have been interrupted after the first step.
    func erase(_ account: String) throws -> Int {
        let rows = try connection.write { db in
            var rows = 0
            for table in ["customerOrder", "customer", "parkedOrder"] {
                try db.run("DELETE FROM \(table) WHERE account = ?", account)
                rows += db.changedRows
            }
            return rows
        }
        // The log holds earlier versions of the pages. This fails while another process reads them.
        try connection.emptyLog()
        // Rebuilds the file, and so drops free pages and the gaps between rows.
        try connection.execute("VACUUM")
        try connection.emptyLog()
        return rows
    }
}

/// A product of the shop. It belongs to the shop, and is never deleted.
struct Product: Sendable {
    var code: String
    var name: String
    /// In cents.
    var price: Int
}

/// A paid order.
struct Order: Sendable {
    var id: Int64
    /// In cents.
    var total: Int
    var soldBy: String
}

/// An order that is not paid yet, saved after every article.
struct ParkedOrder: Sendable {
    /// The associate's account identifier.
    var account: String
    var saves: Int
    var remark: String
}
