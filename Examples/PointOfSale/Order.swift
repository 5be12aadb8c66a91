import GRDB

/// A product of the shop. It belongs to nobody who signs in.
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

/// An order that is not paid yet, saved again and again while it is put together.
struct ParkedOrder: Codable, FetchableRecord, PersistableRecord, Sendable {
    static let databaseTableName = "parkedOrder"

    /// The associate's account identifier.
    var account: String
    var saves: Int
    var remark: String
}
