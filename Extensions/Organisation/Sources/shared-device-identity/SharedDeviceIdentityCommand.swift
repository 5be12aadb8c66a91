import ArgumentParser
import Basics
import DBus
import DeviceConfiguration
import FoundationEssentials
import Glibc
import Identity
import Logging
import ServiceSupport

@main
struct SharedDeviceIdentityCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "shared-device-identity",
        abstract: "Speaks to the organisation's identity provider for the broker.",
        discussion: """
            Serves org.notifycenter.SharedDeviceIdentity1 to the broker of a shared device only. The bus starts it. Prints “ready” when \
            it owns that name; logs to standard error. Ends with SIGTERM or SIGINT. The client's secret comes as the systemd credential \
            oidc-client-secret, a token for the stream of the provider's events as shared-signals-token.
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
        let signals: SignalsReceiver
        let network: NetworkWatch?
        let starter: Observation?
        do {
            let environment = ProcessInfo.processInfo.environment
            let secret = try ServiceCredential.clientSecret.read(environment: environment)
            let token = try ServiceCredential.signalsToken.read(environment: environment)
            current = CurrentProvider(secret: secret, log: log)
            updates = try ManagedConfigurationFile(path: service.configurationFile).updates()
            // The first update is the current file. No call is answered before it is in force.
            var first = updates.makeAsyncIterator()
            if let update = await first.next() { current.use(update) }
            let connection = try DBusConnection.open(service.bus)
            starter = try Self.watchStarter(connection, to: service.bus, environment, process)
            let reports = ProviderReports(connection: connection)
            logouts = LogoutListener(reports: reports, log: log)
            signals = SignalsReceiver(reports: reports, token: token, log: log)
            network = Self.watchNetwork(reports, current, signals, log)
            answers = ProviderService(
                connection: connection,
                provider: { current.provider },
                abandoned: { current.cancelAll() }
            )
            let check = CheckMethod(connection: connection, current: current, logouts: logouts, signals: signals)
            try await answers.start([check.method])
        } catch {
            log.critical("\(error)")
            throw ExitCode(error is DBusError ? EX_UNAVAILABLE : EX_CONFIG)
        }
        await logouts.use(current)
        signals.use(current)
        process.isReady { true }
        let following = Task {
            for await update in updates {
                current.use(update)
                await logouts.use(current)
                signals.use(current)
            }
        }
        await end.first()
        process.isStopping()
        following.cancel()
        signals.stop()
        withExtendedLifetime((answers, logouts, network, starter)) {}
    }

    /// Ends the process with the bus that started it. A new bus starts another process when needed, and nothing would
    /// end this one.
    private static func watchStarter(
        _ connection: DBusConnection,
        to bus: Bus,
        _ environment: [String: String],
        _ process: ServiceProcess
    ) throws(DBusError) -> Observation? {
        // Two addresses that differ only in the bus's identifier name the same socket.
        func place(_ address: String) -> [Substring] { address.split(separator: ",").filter { !$0.hasPrefix("guid=") } }
        // Compare the addresses, because programs inherit the variable: a terminal started by one bus passes it on.
        guard let starter = environment["DBUS_STARTER_ADDRESS"], let address = try? bus.resolvedAddress(),
            place(starter) == place(address)
        else { return nil }
        return try connection.onEvent { event in
            guard case .lost = event else { return }
            process.log.error("the bus that has started this program is gone")
            process.finish()
            Glibc.exit(EX_UNAVAILABLE)
        }
    }

    /// Reports the return of the network, so that the provider is asked soon.
    private static func watchNetwork(
        _ reports: ProviderReports,
        _ current: CurrentProvider,
        _ signals: SignalsReceiver,
        _ log: Logger
    ) -> NetworkWatch? {
        do {
            return try NetworkWatch {
                // First, so that the requests below are not refused because of earlier failures.
                current.forgetFailures()
                signals.wake()
                guard let issuer = current.settings?.issuer.text else { return }
                // The broker decides whether to act. If it is not running, no account is signed in, or it asks at its
                // start.
                Task { try? await reports.tell(ProviderEvent(.networkUp, issuer: issuer)) }
            }
        } catch {
            // The provider is still asked at the regular intervals.
            log.warning("cannot watch for the network to come back", metadata: ["reason": "\(error)"])
            return nil
        }
    }
}

/// The secrets with which this device authenticates to the provider. They are systemd credentials (systemd.exec(5),
/// “Credentials”), so they are in no ordinary file, no argument and no environment variable.
enum ServiceCredential: String {
    /// The client's secret, by which the provider recognises this device.
    case clientSecret = "oidc-client-secret"
    /// The token for the provider's event stream, if an administrator has one.
    case signalsToken = "shared-signals-token"

    private static let longest = 4096

    /// - Parameter environment: The environment of this process: `CREDENTIALS_DIRECTORY` names the directory.
    /// - Returns: `nil` if there is no such credential.
    func read(environment: [String: String]) throws(Problem) -> Secret? {
        guard let directory = environment["CREDENTIALS_DIRECTORY"] else { return nil }
        let (path, longest) = (directory + "/" + rawValue, Self.longest)
        let descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
        guard descriptor >= 0 else {
            guard errno != ENOENT else { return nil }
            throw Problem("\(path) cannot be read: \(String(cString: strerror(errno)))")
        }
        defer { close(descriptor) }
        var bytes = [UInt8](repeating: 0, count: longest + 2)
        defer { bytes.withUnsafeMutableBytes { bytes in bytes.baseAddress.map { explicit_bzero($0, bytes.count) } } }
        var count = 0
        while count < bytes.count {
            let more = bytes[count...].withUnsafeMutableBytes { Glibc.read(descriptor, $0.baseAddress, $0.count) }
            if more == 0 { break }
            guard more > 0 || errno == EINTR else {
                throw Problem("\(path) cannot be read: \(String(cString: strerror(errno)))")
            }
            count += max(0, more)
        }
        // A file written with `echo` ends with a line break.
        if count > 0, bytes[count - 1] == UInt8(ascii: "\n") { count -= 1 }
        guard (1...longest).contains(count), !bytes[..<count].contains(0) else {
            throw Problem("\(path) has to have 1 to \(longest) bytes, none of them zero")
        }
        return Secret(bytes: bytes[..<count])
    }
}
