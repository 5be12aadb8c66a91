/// What the customer at the till has put on the counter. In memory only.
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
