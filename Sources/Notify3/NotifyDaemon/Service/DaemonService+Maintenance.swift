import DBusTransport
import Glibc
import NotifydProtocol

// What an administrator asks for by signals (notify(3), a.15).
extension DaemonService {
    /// Reads the configuration again. Registrations that there are stay, also where it allows them no more. One that cannot be used
    /// leaves the one in force.
    package func reload() {
        guard let configuration = (try? configurationSource.load(isFirst: false)) ?? nil else { return }
        let before = configurationInForce
        configurationInForce = configuration
        state.configure(configuration)
        if (before.monitors, before.rules) != (configuration.monitors, configuration.rules) { watchConfigured() }
    }

    /// Writes the status to the file of this process; short, or with all names and processes.
    package func writeStatus(isLong: Bool) async {
        let text = await statusText(isLong: isLong)
        do throws(StatusFile.Failure) {
            try StatusFile.write(text)
        } catch {
            Diagnostics.write("\(error)")
        }
    }

    func statusText(isLong: Bool) async -> String {
        let listings =
            isLong ? await inquire() : Listings(names: state.nameListings, processes: state.processListings)
        let paths = paths?.figures ?? PathWatcher.Figures()
        let status = StatusText(
            process: UInt32(getpid()),
            bus: "\(connection.bus)",
            configuration: configurationSource.path,
            reservations: configurationInForce.rules.reservations.count,
            figures: figures,
            paths: paths,
            names: listings.names,
            processes: listings.processes
        )
        return isLong ? status.summary + status.details : status.summary
    }
}
