import AppAdapters
import ArgumentParser
import Basics
import CLinux
import DBus
import DeviceConfiguration
import FoundationEssentials
import Glibc
import MicrosoftBroker
import NotifyCenter
@_spi(Extensions) import SharedDevice

@main
struct MicrosoftBrokerCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "shared-device-microsoft-broker",
        abstract: "Gives Microsoft's clients in a desktop session the account of a shared device.",
        discussion: """
            Serves com.microsoft.identity.Broker1 on the session's bus, if the managed configuration has "microsoftBroker": true, and takes part \
            in shared device mode as the app com.microsoft.identity.broker1. Prints “ready” when it owns the name. Ends with SIGTERM or SIGINT.
            Exit status: 0 ended as asked; 64 wrong usage; 69 no bus, or another program has the name; 78 the configuration does not turn \
            it on, or another program is installed for the name.
            """,
        version: ProjectVersion.line(of: "shared-device-microsoft-broker")
    )

    @Option(
        help: ArgumentHelp(
            "The bus that the device's broker serves: session, system, or an address.",
            discussion: "Otherwise $\(Bus.environmentVariable); else the session bus.",
            valueName: "bus"
        )
    )
    var bus: String?

    @Option(
        name: .customLong("configuration"),
        help: ArgumentHelp(
            "The managed configuration; the manifests are in the directory apps next to it.",
            valueName: "file"
        )
    )
    var configurationFile: String = ManagedConfigurationFile.defaultPath

    @Option(
        name: .customLong("state"),
        help: ArgumentHelp("The directory of its record of the sessions whose data it holds.", valueName: "dir")
    )
    var stateDirectory: String?

    @Option(
        help: ArgumentHelp(
            "The program that asks a person to sign in.",
            discussion: "Otherwise shared-device-sign-in, as it is installed.",
            valueName: "program"
        )
    )
    var signIn: String?

    @Option(help: ArgumentHelp("Seconds between two attempts to get the name back.", visibility: .hidden))
    var retryPause: Double = 5

    /// The schema of the keyring items of Microsoft's libraries.
    private static let schema = "com.microsoft.identity.secret"

    func run() async throws {
        // Users' tokens are in memory for a while.
        CLinux_keepMemoryPrivate()
        // Not 0: the prompt inherits the limit and could not raise it to the 1 that it sets for its browser.
        var none = rlimit(rlim_cur: 1, rlim_max: 1)
        setrlimit(__rlimit_resource_t(RLIMIT_CORE.rawValue), &none)
        signal(SIGPIPE, SIG_IGN)
        let end = try EndSignals()
        let environment = ProcessInfo.processInfo.environment
        let file = ManagedConfigurationFile(path: configurationFile)
        try checkIsWanted(file, environment)
        let manifests: AsyncStream<AppManifests>
        let configurations: AsyncStream<ManagedConfigurationUpdate>
        do throws(ManagedConfigurationError) {
            manifests = try AppManifestDirectory(path: file.appManifestDirectory).updates()
            configurations = try file.updates()
        } catch {
            throw Self.failure(EX_CONFIG, "\(error)")
        }
        // One pending loss stands for all.
        let (losses, loss) = AsyncStream<Void>.makeStream(bufferingPolicy: .bufferingNewest(1))
        let broker = try broker(environment) { loss.yield() }
        var first = manifests.makeAsyncIterator()
        if let manifests = await first.next() { use(manifests, broker) }
        do throws(DBusError) {
            try await broker.start()
        } catch {
            throw Self.failure(EX_UNAVAILABLE, "\(error)")
        }
        print("ready")
        fflush(nil)
        let following = Task { try await broker.follow() }
        let reading = Task { for await manifests in manifests { use(manifests, broker) } }
        let watching = Task { await serve(broker, asIn: configurations) }
        let regaining = Task {
            for await _ in losses { await serveAgain(broker) { () throws(DBusError) in try await broker.regainName() } }
        }
        await end.first()
        regaining.cancel()
        reading.cancel()
        watching.cancel()
        following.cancel()
        _ = await following.result
    }

    /// Serves clients exactly while the configuration says so. An unreadable configuration changes nothing.
    private func serve(_ broker: MicrosoftBroker, asIn configurations: AsyncStream<ManagedConfigurationUpdate>) async {
        var serves = true
        var attempt: Task<Void, Never>?
        for await update in configurations {
            let isWanted: Bool
            switch update.inForce {
            case .present(let configuration): isWanted = configuration.microsoftBroker
            case .missing: isWanted = false
            case nil: continue
            }
            guard isWanted != serves else { continue }
            serves = isWanted
            attempt?.cancel()
            await attempt?.value
            attempt = nil
            if isWanted {
                attempt = Task { await serveAgain(broker) { () throws(DBusError) in try await broker.start() } }
            } else {
                await broker.stop()
                Self.warn("clients are no longer served: the configuration does not have \"microsoftBroker\": true")
            }
        }
        attempt?.cancel()
    }

    /// The program must not end when another one has the name, because cleanups run whether clients are served or not.
    private func serveAgain(_ broker: MicrosoftBroker, by attempt: () async throws(DBusError) -> Void) async {
        var problem: String?
        repeat {
            do throws(DBusError) {
                try await attempt()
                if broker.serves { Self.warn("clients are served again") }
                return
            } catch {
                if "\(error)" != problem { Self.warn("clients are not served; this is tried again: \(error)") }
                problem = "\(error)"
            }
        } while (try? await Task.sleep(for: .seconds(retryPause))) != nil
    }

    private func checkIsWanted(_ file: ManagedConfigurationFile, _ environment: [String: String]) throws {
        let content: ManagedConfigurationFile.Content
        do throws(ManagedConfigurationError) {
            content = try file.load()
        } catch {
            throw Self.failure(EX_CONFIG, "\(error)")
        }
        guard case .present(let configuration) = content, configuration.microsoftBroker else {
            throw Self.failure(EX_CONFIG, "\(file.path) does not have \"microsoftBroker\": true")
        }
        let others = ActivationFiles.others(
            named: BrokerContract.busName,
            than: "shared-device-microsoft-broker",
            in: ActivationFiles.directories(environment: environment)
        )
        if let other = others.first {
            throw Self.failure(
                EX_CONFIG,
                "\(other) has the bus start another program as \(BrokerContract.busName); remove the package that owns this file"
            )
        }
    }

    private func broker(
        _ environment: [String: String],
        nameLost: @escaping @Sendable () -> Void
    ) throws -> MicrosoftBroker {
        let deviceBus = bus.map(Bus.init(name:)) ?? .fromEnvironment
        let hasDisplay = ["WAYLAND_DISPLAY", "DISPLAY"].contains { environment[$0]?.isEmpty == false }
        var prompt = SignInProgram(signIn, bus: deviceBus)
        // A client has no terminal for the prompt.
        prompt.showsPage = true
        do throws(DBusError) {
            return MicrosoftBroker(
                connection: try DBusConnection.open(.session),
                application: SharedDeviceApplication(
                    identifier: BrokerContract.application,
                    bus: deviceBus,
                    stateDirectory: stateDirectory
                ),
                prompter: hasDisplay ? Prompter(prompt) : nil,
                removeSecrets: {
                    let count = try await SecretItems.remove(schema: Self.schema)
                    return "\(count) \(count == 1 ? "item" : "items")"
                },
                nameLost: nameLost
            )
        } catch {
            throw Self.failure(EX_UNAVAILABLE, "\(error)")
        }
    }

    private func use(_ manifests: AppManifests, _ broker: MicrosoftBroker) {
        for problem in manifests.problems { Self.warn("\(problem)") }
        let own = manifests.manifests.first { $0.identifier == BrokerContract.application }
        if own == nil { Self.warn("no manifest has the id \(BrokerContract.application): no client gets a token") }
        broker.use(own?.tokens ?? TokenRights())
    }

    private static func warn(_ text: String) {
        var line = "shared-device-microsoft-broker: \(text)\n"
        _ = line.withUTF8 { write(STDERR_FILENO, $0.baseAddress, $0.count) }
    }

    private static func failure(_ status: Int32, _ text: String) -> ExitCode {
        warn(text)
        return ExitCode(status)
    }
}
