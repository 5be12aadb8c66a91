import ArgumentParser
import Basics
import CommandParts
import DBus
import Glibc
import Identity

struct ProviderCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "provider",
        abstract: "Checks the organisation's identity provider.",
        subcommands: [ProviderCheckCommand.self]
    )
}

struct ProviderCheckCommand: ReportingCommand {
    static let configuration = CommandConfiguration(
        commandName: "check",
        abstract: "Tests what this device needs from its provider, step by step, and names remedies.",
        discussion: """
            shared-device-identity carries it out, under the configuration and with the secret that sign-ins have. No user signs in: the \
            process sends a code and tokens that were never issued, and reads the provider's refusals. For root.
            Exit status: 0 nothing fails; 1 something does; 69 the process does not respond; 78 no provider is configured.
            """
    )

    @Flag(help: "As a JSON object, for programs.")
    var json = false

    @OptionGroup var bus: BusOptions

    /// A provider that hangs takes ten seconds for each step.
    private static let patience: Duration = .seconds(120)

    func execute() throws {
        let steps = try ask()
        let works = !steps.contains { $0.outcome == .fails }
        try emit(json ? Form.json(Report(works: works, steps: steps)) : steps.map(\.line).joined(separator: "\n"))
        if !works { throw ExitCode(1) }
    }

    private func ask() throws -> [ProviderCheckStep] {
        do {
            let answer = try DBusConnection.open(bus.bus).callAndWait(
                .methodCall(
                    destination: IdentityProtocol.busName,
                    path: IdentityProtocol.path,
                    interface: IdentityProtocol.interface,
                    member: IdentityProtocol.checkMethod
                ),
                timeout: Self.patience
            )
            return try ProviderCheckStep.steps(IdentityProtocol.fields(of: answer))
        } catch let error as DBusError {
            let error = IdentityError(error)
            warn(error.description)
            throw ExitCode(error.code == .providerMisconfigured ? EX_CONFIG : EX_UNAVAILABLE)
        } catch let error as IdentityError {
            warn(error.description)
            throw ExitCode(EX_UNAVAILABLE)
        }
    }
}

/// The properties' names are the JSON's keys, which programs rely on.
private struct Report: Encodable {
    let works: Bool
    let steps: [ProviderCheckStep]
}

extension ProviderCheckStep {
    fileprivate var line: String {
        let (sign, colour): (String, Terminal.Colour?) =
            switch outcome {
            case .works: ("✓", .green)
            case .fails: ("✗", .red)
            case .unknown: ("–", nil)
            }
        let padding = String(repeating: " ", count: max(0, 13 - title.count))
        return Terminal.coloured(sign, colour) + " " + title + padding + " " + text.printable
    }

    private var title: String {
        switch name {
        case .tls: "TLS"
        case .discovery: "description"
        case .keys: "keys"
        case .redirect: "browser"
        case .deviceCode: "device code"
        case .client: "client"
        case .refresh: "refresh"
        case .revocation: "revocation"
        case .endSession: "end session"
        case .backChannelLogout: "logouts"
        case .sharedSignals: "events"
        }
    }
}
