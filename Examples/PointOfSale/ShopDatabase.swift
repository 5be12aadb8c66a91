import GRDB

/// The shop's one SQLite file: the products, which stay, and the orders and customers of whoever is signed in, which do not.
///
/// Calls wait for SQLite, and may come from any thread.
final class ShopDatabase: Sendable {
    private let pool: DatabasePool

    init(path: String) throws {
        var configuration = Configuration()
        configuration.busyMode = .timeout(2)
        configuration.prepareDatabase { db in
            // Deleted rows are overwritten, and no row is copied into a temporary file.
            try db.execute(sql: "PRAGMA secure_delete = ON; PRAGMA temp_store = MEMORY")
        }
        pool = try DatabasePool(path: path, configuration: configuration)
        try Self.migrator.migrate(pool)
    }

    private static var migrator: DatabaseMigrator {
        var migrator = DatabaseMigrator()
        migrator.registerMigration("products and orders") { db in
            try db.execute(
                sql: """
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
            )
            for (code, name, price) in catalogue { try Product(code: code, name: name, price: price).insert(db) }
        }
        return migrator
    }

    private static let catalogue = [
        ("B-001", "Hiking boots", 12_900), ("B-002", "Rain jacket", 8_950), ("B-003", "Wool socks", 1_490),
        ("B-004", "Head torch", 3_495), ("B-005", "Water bottle", 1_995), ("B-006", "Trail map", 1_250),
    ]

    // MARK: Reading

    /// What the associate's screen is made of.
    struct Sales: Sendable {
        var orders: [Order]
        var parked: ParkedOrder?
        var products: Int
    }

    func sales(of account: String) throws -> Sales {
        try pool.read { db in
            Sales(
                orders: try Order.filter(Column("account") == account).order(Column("id")).fetchAll(db),
                parked: try ParkedOrder.fetchOne(db, key: account),
                products: try Product.fetchCount(db)
            )
        }
    }

    func products() throws -> [Product] {
        try pool.read { db in try Product.order(Column("code")).fetchAll(db) }
    }

    // MARK: Writing

    /// Books what is in the cart; returns the order.
    func book(_ cart: Cart, for customer: Customer, soldBy: String) throws -> Order {
        try pool.write { db in
            try customer.insert(db)
            let customerId = db.lastInsertedRowID
            let order = Order(account: customer.account, customerId: customerId, total: cart.total, soldBy: soldBy)
            try order.insert(db)
            let orderId = db.lastInsertedRowID
            for line in cart.lines {
                try OrderLine(orderId: orderId, productCode: line.product.code, quantity: line.quantity).insert(db)
            }
            return order
        }
    }

    func park(_ order: ParkedOrder) throws {
        try pool.write { db in try order.save(db) }
    }

    /// Deletes all that is the account's, so that no byte of it is left in the file, its free pages or its write-ahead log;
    /// returns how many rows that were.
    ///
    /// It does all its steps also where there are no rows: an earlier attempt may have been cut short after the first one.
    func erase(_ account: String) throws -> Int {
        let rows = try pool.write { db in
            var rows = 0
            for table in ["customerOrder", "customer", "parkedOrder"] {
                try db.execute(sql: "DELETE FROM \(table) WHERE account = ?", arguments: [account])
                rows += db.changesCount
            }
            return rows
        }
        // The readers keep pages in memory.
        pool.releaseMemory()
        try pool.barrierWriteWithoutTransaction { db in
            // The log holds earlier versions of the pages. It fails where another process still reads them.
            try db.checkpoint(.truncate)
            // Pages that were given back, and what lies between the rows of the others.
            try db.execute(sql: "VACUUM")
            try db.checkpoint(.truncate)
        }
        return rows
    }
}
