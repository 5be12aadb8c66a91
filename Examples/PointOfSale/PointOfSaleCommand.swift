import ArgumentParser
import ExampleSupport

@main
struct PointOfSaleCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "point-of-sale",
        abstract: "A shop's till on a shared device: products of the shop, orders and customers of who is signed in.",
        discussion: "Takes commands on standard input, one a line:\n\(Command.overview)"
    )

    @OptionGroup var options: AppOptions

    func run() async throws {
        let app = options.app(name: "point-of-sale", title: "Point of sale")
        try await app.run { try ShopWorkspace(database: ShopDatabase(path: "\($0)/shop.sqlite")) }
    }
}
