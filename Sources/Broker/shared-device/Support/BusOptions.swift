import ArgumentParser
import NotifyCenter
import SharedDevice
import SharedDeviceBroker

/// Which broker a command asks.
struct BusOptions: ParsableArguments {
    @Option(
        name: .customLong("bus"),
        help: ArgumentHelp(
            "The bus that the broker serves: session, system, or an address.",
            discussion: "Otherwise $\(Bus.environmentVariable); else the session bus.",
            valueName: "bus"
        )
    )
    var name: String?

    var bus: Bus { name.map(Bus.init(name:)) ?? .fromEnvironment }

    func connect() throws(SharedDeviceError) -> BrokerAdministration { try BrokerAdministration(bus: bus) }
}
