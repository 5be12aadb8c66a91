import ArgumentParser
import SharedDeviceBroker

struct StatusCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "status",
        abstract: "Shows who is signed in, and how far the cleanup after the last session is.",
        discussion: """
            Reads the database, also while no broker runs. The organisation, whether a sign-in is held, and which apps run are \
            the broker's to tell.
            """
    )

    @Flag(help: "As a JSON object, for programs.")
    var json = false

    @OptionGroup var state: StateOptions
    @OptionGroup var bus: BusOptions

    func run() throws {
        try reportingFailure {
            let database = try state.openDatabase(.existing)
            let status = try DeviceStatus(database: database, broker: BrokerView(bus))
            try emit(json ? Form.json(status) : status.text)
        }
    }
}
