import ArgumentParser
import Basics
import CommandParts
import DBus
import DeviceConfiguration
import FoundationEssentials
import Glibc
@_spi(Extensions) import SharedDevice

struct BusPolicyCommand: ReportingCommand {
    static let configuration = CommandConfiguration(
        commandName: "bus-policy",
        abstract: "Writes which users the system bus lets call the broker.",
        discussion: """
            Prints a policy in the bus's XML, made of the configuration and of the apps' manifests: root, the broker's services, the \
            groups sudo and wheel, the operators and the users of the manifests may call, and no other user. Where the device is \
            personal, “requiresEnrolment” is false, or a manifest that counts has no “user”, any user may. shared-device-bus-policy.service \
            runs it with --output. The apps' manifests are in apps, next to the configuration. The command names the \
            operators that the system does not know. They may call after the command has run again.
            Exit status: 0 done; 65 the configuration is bad, and the former policy stays, or a manifest is bad: the policy has the other \
            apps, and the rules of the former policy stay in it.
            """
    )

    @Option(name: .customLong("configuration"), help: ArgumentHelp("The configuration.", valueName: "file"))
    var file: String = ManagedConfigurationFile.defaultPath

    @Option(
        help: ArgumentHelp(
            "The file that the bus includes. It is replaced in one step, and the bus of --bus is asked to read it.",
            valueName: "file"
        )
    )
    var output: String?

    @OptionGroup var bus: BusOptions

    func validate() throws { if output?.isEmpty == true { throw ValidationError("--output needs the name of a file") } }

    func execute() throws {
        var (policy, problem) = try policy()
        guard let output else {
            try emit(String(policy.xml.dropLast()))
            if let problem { throw problem }
            return
        }
        // A change during the run leads to a repetition, because it starts no second run of the service.
        for repetition in 1...Self.mostRepetitions {
            let former = try? String(contentsOfFile: output, encoding: .utf8)
            let written =
                problem.map { policy.beside(badManifest: $0.file, former: former) } ?? (policy: policy, xml: policy.xml)
            try replaceFile(output, by: written.xml)
            try reload()
            let next = try self.policy()
            guard next != (policy, problem), repetition < Self.mostRepetitions else {
                try emit("\(written.policy)".printable)
                break
            }
            (policy, problem) = next
        }
        if let problem { throw problem }
    }

    private static let mostRepetitions = 5

    /// - Returns: The policy of the valid manifests, and the first problem of the invalid manifests.
    private func policy() throws -> (BusPolicy, ManagedConfigurationError?) {
        let source = ManagedConfigurationFile(path: file)
        let content = try source.load()
        let manifests = AppManifestDirectory(path: source.appManifestDirectory).load()
        return (try BusPolicy(content, manifests.manifests), manifests.problems.first)
    }

    private func reload() throws {
        let bus = bus.bus
        do {
            try OtherThreads.run { _ = try await DBusConnection.open(bus).callBus("ReloadConfig") }
        } catch {
            throw CommandFailure(
                EX_UNAVAILABLE,
                "the policy is written, and the bus did not read it: \(error); ask it with: systemctl reload dbus"
            )
        }
    }
}
