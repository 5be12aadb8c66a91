import GRDB

/// The shop's SQLite file: the products, which stay, and the orders and customers of each associate, which go with them.
///
/// Calls block until SQLite is done, and may come from any thread.
final class ShopDatabase: Sendable {
    private let pool: DatabasePool

    init(path: String) throws {
        var configuration = Configuration()
        configuration.busyMode = .timeout(2)
        configuration.prepareDatabase { db in
            // SQLite overwrites deleted rows, and copies no row into a temporary file.
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

    /// The content of the associate's screen.
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

    /// Deletes all data of the account, so that no byte of it is left in the file, its free pages or its write-ahead log. Returns the
    /// number of rows.
    ///
    /// All steps run even if there are no rows: an earlier attempt may have been interrupted after the first step.
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
            // The log holds earlier versions of the pages. This fails while another process reads them.
            try db.checkpoint(.truncate)
            // Rebuilds the file, and so drops free pages and the gaps between rows.
            try db.execute(sql: "VACUUM")
            try db.checkpoint(.truncate)
        }
        return rows
    }
}

/// A product of the shop. It belongs to the shop, and stays.
struct Product: Codable, FetchableRecord, PersistableRecord, Sendable {
    static let databaseTableName = "product"

    var code: String
    var name: String
    /// In cents.
    var price: Int
}

/// A customer whom the associate serves.
struct Customer: Codable, FetchableRecord, PersistableRecord, Sendable {
    static let databaseTableName = "customer"

    /// Given by the database.
    var id: Int64?
    /// The associate's account identifier.
    var account: String
    var name: String
    var remark: String
}

/// A paid order.
struct Order: Codable, FetchableRecord, PersistableRecord, Sendable {
    static let databaseTableName = "customerOrder"

    /// Given by the database.
    var id: Int64?
    /// The associate's account identifier.
    var account: String
    var customerId: Int64
    /// In cents.
    var total: Int
    var soldBy: String
}

/// One product of an order.
struct OrderLine: Codable, FetchableRecord, PersistableRecord, Sendable {
    static let databaseTableName = "orderLine"

    var orderId: Int64
    var productCode: String
    var quantity: Int
}

/// An order that is not paid yet, saved after every article.
struct ParkedOrder: Codable, FetchableRecord, PersistableRecord, Sendable {
    static let databaseTableName = "parkedOrder"

    /// The associate's account identifier.
    var account: String
    var saves: Int
    var remark: String
}
