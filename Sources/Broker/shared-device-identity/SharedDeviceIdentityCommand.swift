import ArgumentParser
import DBusTransport
import DeviceConfiguration
import FoundationEssentials
import Glibc
import IdentityService
import Logging
import ProjectVersion
import ServiceSupport

@main
struct SharedDeviceIdentityCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "shared-device-identity",
        abstract: "Speaks to the organisation's identity provider, in the broker's place.",
        discussion: """
            Serves org.notifycenter.SharedDeviceIdentity1 to the broker of a shared device, and to nobody else. The bus starts it. Prints “ready” when \
            it owns that name; logs to standard error. Ends with SIGTERM or SIGINT. The client's secret comes as the systemd credential \
            oidc-client-secret.
            Exit status: 0 ended as asked; 64 wrong usage; 69 no bus, or another process serves it; 78 configuration or credential cannot be used.
            """,
        version: ProjectVersion.line(of: "shared-device-identity")
    )

    @OptionGroup var service: ServiceOptions

    func run() async throws {
        let process = ServiceProcess("shared-device-identity", level: service.logLevel)
        defer { process.finish() }
        let log = process.log
        let end = try EndSignals()
        let updates: AsyncStream<ManagedConfigurationUpdate>
        let current: CurrentProvider
        let answers: ProviderService
        let logouts: LogoutListener
        do {
            let secret = try ClientSecret.read(environment: ProcessInfo.processInfo.environment)
            current = CurrentProvider(secret: secret, log: log)
            updates = try ManagedConfigurationFile(path: service.configurationFile).updates()
            // The first one is the present file. Nobody is answered before it is in force.
            var first = updates.makeAsyncIterator()
            if let update = await first.next() { current.use(update) }
            let connection = try DBusConnection.open(service.bus)
            logouts = LogoutListener(connection: connection, log: log)
            answers = ProviderService(
                connection: connection,
                provider: { current.provider },
                abandoned: { current.cancelAll() }
            )
            try await answers.start([CheckMethod(connection: connection, current: current).method])
        } catch {
            log.critical("\(error)")
            throw ExitCode(error is DBusError ? EX_UNAVAILABLE : EX_CONFIG)
        }
        logouts.use(current)
        process.isReady { true }
        let following = Task {
            for await update in updates {
                current.use(update)
                logouts.use(current)
            }
        }
        await end.first()
        process.isStopping()
        following.cancel()
        withExtendedLifetime((answers, logouts)) {}
    }
}
