import ArgumentParser
import DBusTransport
import DeviceConfiguration
import FoundationEssentials
import Glibc

struct BusPolicyCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "bus-policy",
        abstract: "Writes which users the system bus lets call the broker.",
        discussion: """
            Prints a policy in the bus's XML, made of the configuration and of the apps' manifests: root, the broker's services, the \
            groups sudo and wheel, the operators and the users of the manifests may call, and no other user. Where the device is \
            personal, “requiresEnrolment” is false, or a manifest that counts has no “user”, any user may. shared-device-bus-policy.service \
            runs it with --output. The apps' manifests are in apps, beside the configuration.
            Exit status: 0 done; 65 the configuration or a manifest is bad, and the former policy stays.
            """
    )

    @Option(
        name: .customLong("configuration"),
        help: ArgumentHelp("The configuration.", valueName: "file")
    )
    var file: String = ManagedConfigurationFile.defaultPath

    @Option(
        help: ArgumentHelp(
            "The file that the bus includes. It is replaced in one step, and the bus of --bus is asked to read it.",
            valueName: "file"
        )
    )
    var output: String?

    @OptionGroup var bus: BusOptions

    func validate() throws {
        if output?.isEmpty == true { throw ValidationError("--output needs the name of a file") }
    }

    func run() throws {
        try reportingFailure {
            var policy = try policy()
            guard let output else { return try emit(String(policy.xml.dropLast())) }
            // What changes meanwhile starts no second run of the service.
            for _ in 0..<Self.mostRepetitions {
                try write(policy, to: output)
                try reload()
                let next = try self.policy()
                if next == policy { break }
                policy = next
            }
            try emit(Terminal.printable("\(policy)"))
        }
    }

    private static let mostRepetitions = 5

    private func policy() throws -> BusPolicy {
        let source = ManagedConfigurationFile(path: file)
        let content = try source.load()
        let manifests = AppManifestDirectory(path: source.appManifestDirectory).load()
        // The policy of before admits the app that a bad manifest is about.
        if let problem = manifests.problems.first { throw problem }
        return try BusPolicy(content, manifests.manifests)
    }

    private func write(_ policy: BusPolicy, to output: String) throws {
        do {
            try replaceFile(output, by: policy.xml)
        } catch {
            throw CommandFailure(status: EX_CANTCREAT, description: "cannot write \(output): \(systemReason(error))")
        }
    }

    private func reload() throws {
        let bus = bus.bus
        do {
            try OtherThreads.run { _ = try await DBusConnection.open(bus).callBus("ReloadConfig") }
        } catch {
            throw CommandFailure(
                status: EX_UNAVAILABLE,
                description:
                    "the policy is written, and the bus did not read it: \(error); ask it with: systemctl reload dbus"
            )
        }
    }
}
