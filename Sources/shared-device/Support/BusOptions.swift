import ArgumentParser
import DBusTransport
import NotifyCenter
import SharedDevice
import SharedDeviceBroker

/// Where the broker is that a command talks to.
struct BusOptions: ParsableArguments {
    @Option(
        name: .customLong("bus"),
        help: ArgumentHelp(
            "The broker's bus: session, system, or an address.",
            discussion: "Otherwise $NOTIFY_CENTER_BUS; else the session bus.",
            valueName: "bus"
        )
    )
    var name: String?

    /// - Throws: ``SharedDeviceError`` where there is no such bus.
    func administration() throws(SharedDeviceError) -> BrokerAdministration {
        try BrokerAdministration(bus: name.map(Bus.init(name:)) ?? .fromEnvironment)
    }
}
