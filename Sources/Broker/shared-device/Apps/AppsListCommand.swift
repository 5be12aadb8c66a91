import ArgumentParser
import SharedDeviceBroker

struct AppsListCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "list",
        abstract: "Lists the apps, in the order of their identifiers, with the cleanups that they owe.",
        discussion: "Reads the database, also while no broker runs; which apps run is the broker's to tell."
    )

    @Flag(help: "As a JSON array, for programs.")
    var json = false

    @OptionGroup var state: StateOptions
    @OptionGroup var bus: BusOptions

    func run() throws {
        try reportingFailure {
            let database = try state.openDatabase(.existing)
            let running = BrokerView(bus).running
            let apps = KnownApp.all(in: try LedgerStore(database: database).ledger(), running: running)
            try emit(json ? Form.json(apps) : KnownApp.table(apps).lines.joined(separator: "\n"))
        }
    }
}
