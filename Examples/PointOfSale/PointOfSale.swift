import ArgumentParser
import ExampleSupport
import SharedDevice

@main
struct PointOfSaleCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "point-of-sale",
        abstract:
            "A shop's till on a shared device: the shop's products, and the orders and customers of the person who is signed in.",
        discussion: "Takes commands on standard input, one a line:\n\(ExampleApp.commands)"
    )

    @OptionGroup var app: ExampleApp

    func run() async throws {
        try await app.run("point-of-sale", title: "Point of sale") {
            try ShopWorkspace(database: ShopDatabase(path: "\($0)/shop.sqlite"))
        }
    }
}

/// The till: orders on disk, the cart in memory.
actor ShopWorkspace: UserWorkspace {
    private let database: ShopDatabase
    private var account: Account?
    private var cart = Cart()

    init(database: ShopDatabase) { self.database = database }

    // Nothing to do: SQLite rolls back half-written transactions when it opens the file.
    func prepare() {}

    func open(for account: Account) { self.account = account }

    func close() {
        account = nil
        cart = Cart()
    }

    func display() throws -> Display {
        guard let account else { return Display(items: 0, lines: []) }
        let sales = try database.sales(of: account.identifier)
        let total = sales.orders.reduce(0) { $0 + $1.total }
        var lines = sales.orders.suffix(5).map { "order \($0.id): \(Self.price($0.total)), sold by \($0.soldBy)" }
        lines.append("takings of this session: \(Self.price(total))")
        if let parked = sales.parked { lines.append("open order, version \(parked.saves): \(parked.remark)") }
        lines.append("\(sales.products) products in the catalogue")
        return Display(items: sales.orders.count, lines: lines)
    }

    /// Adds a few articles to the cart, and sells it.
    func work() throws -> String {
        guard let account else { throw CancellationError() }
        let number = try database.sales(of: account.identifier).orders.count
        for (index, product) in try database.products().enumerated() where index % 3 == number % 3 {
            cart.add(product, quantity: index + 1)
        }
        let name = Self.customers[number % Self.customers.count]
        try database.book(cart, for: name, of: account.identifier, soldBy: DataMarker.signature(of: account))
        defer { cart = Cart() }
        return "sold order \(number + 1) to \(name) for \(Self.price(cart.total))"
    }

    /// Puts the next order together, and saves it after every article, so that a crash loses none.
    func workUntilCancelled() async throws -> String {
        guard let account else { return "nothing under way" }
        let products = try database.products()
        var saves = 0
        while !Task.isCancelled {
            let product = products[saves % products.count]
            cart.add(product, quantity: 1)
            saves += 1
            let remark = "\(product.name) added by \(DataMarker.signature(of: account))"
            try database.park(ParkedOrder(account: account.identifier, saves: saves, remark: remark))
            // A cancellation ends the sleep at once.
            try? await Task.sleep(for: .milliseconds(25))
        }
        return "an open order, after \(saves) saves"
    }

    func deleteData(of account: Account) throws -> String {
        let rows = try database.erase(account.identifier)
        return "\(rows) rows, with their pages and the write-ahead log"
    }

    private static let customers = ["Mary Anning", "Joseph Banks", "Maria Merian", "Carl Linnaeus"]

    private static func price(_ cents: Int) -> String {
        let rest = cents % 100
        return "\(cents / 100).\(rest < 10 ? "0" : "")\(rest)"
    }
}

/// The articles of the customer at the till. In memory only.
struct Cart: Sendable {
    private(set) var lines: [(product: Product, quantity: Int)] = []

    var total: Int { lines.reduce(0) { $0 + $1.product.price * $1.quantity } }

    mutating func add(_ product: Product, quantity: Int) {
        if let index = lines.firstIndex(where: { $0.product.code == product.code }) {
            lines[index].quantity += quantity
        } else {
            lines.append((product, quantity))
        }
    }
}
