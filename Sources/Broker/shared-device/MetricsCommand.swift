import ArgumentParser
import CommandParts
import DBus
import DeviceConfiguration
import FoundationEssentials
import Glibc
@_spi(Extensions) import SharedDevice

struct MetricsCommand: ReportingCommand {
    static let configuration = CommandConfiguration(
        commandName: "metrics",
        abstract: "Writes the device as metrics, in the text form of OpenMetrics.",
        discussion: """
            For monitoring, for instance by node_exporter's textfile collector: run it each minute with --output FILE.prom. No \
            metric names a person or an app. If the broker does not respond, shared_device_up is 0, and \
            the other metrics are absent. It needs the right to see the device, as “watch” does.
            """
    )

    @OptionGroup var output: MetricsOutput
    @OptionGroup var state: NoStateOption
    @OptionGroup var bus: BusOptions

    func execute() throws { try output.write(try metrics()) }

    /// - Throws: ``SharedDeviceError`` if the broker refuses the request. A missing broker is a metric, not an error.
    private func metrics() throws(SharedDeviceError) -> String {
        do throws(SharedDeviceError) {
            let broker = try bus.connect()
            let device = ObservedDevice(try broker.callAndWait(.getStatus, attempted: "read the device's status"))
            guard let session = device.rounds.last else { return DeviceMetrics.text(device, nil) }
            let question: BrokerProtocol.Fields = ["session": .uint64(session), "administration": .boolean(true)]
            let answer = try broker.callAndWait(.getRound, question, attempted: "read the last cleanup")
            return DeviceMetrics.text(device, try? CleanupReport(answer["round"]))
        } catch {
            guard error.code == .brokerUnavailable else { throw error }
            return DeviceMetrics.text(nil, nil)
        }
    }
}
