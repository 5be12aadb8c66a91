public import ArgumentParser
public import DBus
import DeviceConfiguration

/// The command-line options of every service of a shared device.
public struct ServiceOptions: ParsableArguments {
    @Option(name: .customLong("bus"), help: ArgumentHelp("The bus: session, system, or an address.", valueName: "bus"))
    public var busName: String?

    @Option(
        name: .customLong("configuration"),
        help: ArgumentHelp("The managed configuration, a JSON file; read again when it changes.", valueName: "file")
    )
    public var configurationFile: String = ManagedConfigurationFile.defaultPath

    @Option(help: ArgumentHelp("The least level to log.", valueName: "level"))
    public var logLevel: LogLevel = .info

    public init() {}

    /// The named bus; otherwise the bus that the environment names.
    public var bus: Bus { busName.map(Bus.init(name:)) ?? .fromEnvironment }
}

public enum LogLevel: String, ExpressibleByArgument, CaseIterable, Sendable {
    case trace
    case debug
    case info
    case notice
    case warning
    case error
}
