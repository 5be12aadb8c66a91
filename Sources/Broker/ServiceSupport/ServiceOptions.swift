package import ArgumentParser
package import DBus
import DeviceConfiguration

/// The command-line options of every service of a shared device.
package struct ServiceOptions: ParsableArguments {
    @Option(
        name: .customLong("bus"),
        help: ArgumentHelp("The bus: session, system, or an address.", valueName: "bus")
    )
    package var busName: String?

    @Option(
        name: .customLong("configuration"),
        help: ArgumentHelp(
            "The managed configuration, a JSON file; read again when it changes.",
            valueName: "file"
        )
    )
    package var configurationFile: String = ManagedConfigurationFile.defaultPath

    @Option(
        help: ArgumentHelp("The least level to log.", valueName: "level")
    )
    package var logLevel: LogLevel = .info

    package init() {}

    /// The named bus; otherwise the one in the environment.
    package var bus: Bus { busName.map(Bus.init(name:)) ?? .fromEnvironment }
}

package enum LogLevel: String, ExpressibleByArgument, CaseIterable {
    case trace
    case debug
    case info
    case notice
    case warning
    case error
}
