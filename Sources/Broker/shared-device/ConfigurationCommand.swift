import ArgumentParser
import Basics
import BrokerCore
import CommandParts
import DeviceConfiguration
import FoundationEssentials
import Glibc
import Identity
@_spi(Extensions) import SharedDevice

struct ConfigurationCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "configuration",
        abstract: "Checks and converts managed configurations.",
        subcommands: [ConfigurationCheckCommand.self, ConfigurationConvertCommand.self]
    )
}

struct ConfigurationCheckCommand: ReportingCommand {
    static let configuration = CommandConfiguration(
        commandName: "check",
        abstract: "Explains a configuration file, without a broker.",
        discussion: """
            Prints probable mistakes, every key with its value and its meaning for the device, and the apps that have a manifest; or \
            all errors. The file is a JSON object. "shared-device configuration convert" makes it from a profile for iOS.
            Exit status: 0 the broker would take it; 65 it would not, or a manifest is bad, or with --strict there is a warning; \
            66 there is no such file, or it cannot be read.
            """
    )

    @Argument(help: ArgumentHelp("The configuration.", valueName: "file"))
    var file: String = ManagedConfigurationFile.defaultPath

    @Option(
        help: ArgumentHelp(
            "The directory of the apps' manifests.",
            discussion: "By default apps, next to the file; it need not exist.",
            valueName: "dir"
        )
    )
    var apps: String?

    @Flag(help: "Fail for warnings, too.")
    var strict = false

    @Flag(help: "As a JSON object, for programs.")
    var json = false

    func execute() throws {
        let source = ManagedConfigurationFile(path: file)
        let directory = AppManifestDirectory(path: apps ?? source.appManifestDirectory)
        guard let configuration = try configuration(source, directory) else { throw CommandFailure.noFile(file) }
        let report = ConfigurationReport(configuration: configuration, manifests: directory.load())
        print(json ? try report.json() : try report.text())
        for problem in report.problems.flatMap(\.all) { warn("\(problem)") }
        if !report.problems.isEmpty || strict && report.hasWarnings { throw ExitCode(EX_DATAERR) }
    }

    /// Loads the configuration. With `--json`, errors also go to standard output.
    private func configuration(
        _ source: ManagedConfigurationFile,
        _ directory: AppManifestDirectory
    ) throws -> ManagedConfiguration? {
        do throws(ManagedConfigurationError) {
            guard case .present(let configuration) = try source.load() else { return nil }
            return configuration
        } catch {
            let problems = ([error] + directory.load().problems).flatMap(\.all)
            if json { print(try Form.json(InvalidConfiguration(problems: problems))) }
            for problem in problems { warn("\(problem)") }
            throw ExitCode(error.exitStatus)
        }
    }
}

struct ConfigurationConvertCommand: ReportingCommand {
    static let configuration = CommandConfiguration(
        commandName: "convert",
        abstract: "Makes a configuration file from a profile for iOS.",
        discussion: """
            Reads a .mobileconfig profile, one payload of it, or the keys alone, as an XML or binary property list, and prints the JSON \
            object that the broker reads. Standard error lists the keys that are left out, which have a meaning \
            on iOS only or no meaning.
            Exit status: 0 the broker would take what was printed; 65 it would not; 66 there is no such file, or it cannot be read.
            """
    )

    @Argument(help: ArgumentHelp("The profile.", valueName: "file"))
    var file: String

    func execute() throws {
        guard let content = try ManagedConfigurationFile(path: file).content() else {
            throw CommandFailure.noFile(file)
        }
        let converted: ConvertedProfile
        do throws(ManagedConfigurationError) {
            converted = try ConvertedProfile(content, file: file)
        } catch {
            for problem in error.all { warn("\(problem)") }
            throw ExitCode(error.exitStatus)
        }
        try emit(String(decoding: converted.json, as: UTF8.self))
        for omission in converted.omissions { warn("\(file): \(omission)") }
        for warning in converted.configuration.warnings { warn("\(file): \(warning)") }
    }
}

extension CommandFailure {
    fileprivate static func noFile(_ file: String) -> CommandFailure {
        CommandFailure(EX_NOINPUT, "there is no file \(file)")
    }
}

/// The effect of a valid configuration together with the manifests.
struct ConfigurationReport {
    let configuration: ManagedConfiguration
    let manifests: AppManifests

    var problems: [ManagedConfigurationError] { manifests.problems }

    var hasWarnings: Bool { !warnings.isEmpty }

    private var warnings: [KeyWarning] {
        let ofManifests = manifests.manifests.flatMap { manifest in
            (manifest.warnings + [manifest.allowedUsers?.warning(configuration.identity)].compactMap(\.self)).map {
                KeyWarning(key: $0.key, message: "\($0.message) in the manifest of \(manifest.identifier)")
            }
        }
        let ofLists = AppEligibility(
            lists: configuration.appLists,
            // Without the key, a bus that only one user reaches requires no enrolment, unless sign-ins wait.
            requiresEnrolment: configuration.requiresEnrolment != false || configuration.cleanup.deadline != nil,
            manifests: manifests.manifests,
            requiresCleanup: configuration.cleanup.deadline != nil
        ).warnings
        return configuration.warnings + ofManifests + [ofScreen].compactMap(\.self) + ofScopes
            + ofLists.map { KeyWarning(key: nil, message: $0) }
    }

    /// The warning that no program can show the lock. Inactivity then signs the user out.
    private var ofScreen: KeyWarning? {
        let identifier = BrokerProtocol.screenIdentifier
        guard configuration.locksSessions else { return nil }
        let cause: String
        switch manifests.manifests.first(where: { $0.identifier == identifier }) {
        case nil: cause = "\(identifier) has no manifest, or it is masked"
        case let manifest? where !manifest.identity.isProof:
            cause = "on the system bus the manifest of \(identifier) does not count without \"user\""
        case _?: return nil
        }
        return KeyWarning(
            key: ManagedConfiguration.Key.inactivityAction.rawValue,
            message: "is lock, and the user is signed out instead: \(cause); "
                + "run: shared-device apps enrol shared-device-screen --force --id \(identifier) --user USER"
        )
    }

    /// Warnings about ID tokens: an app receives the provider's ID token only if its manifest contains each scope about
    /// the person that the sign-in was granted.
    private var ofScopes: [KeyWarning] {
        guard let organisation = configuration.organisation else { return [] }
        let aboutPerson = IdentityToken.scopesOfPersons.intersection(organisation.scopes)
        return manifests.manifests.filter { $0.tokens.scopes.contains("openid") }.compactMap { manifest in
            let missing = aboutPerson.subtracting(manifest.tokens.scopes).sorted().joined(separator: " ")
            guard !missing.isEmpty else { return nil }
            return KeyWarning(
                key: "scopes",
                message: "lacks \(missing) of oidcScopes in the manifest of \(manifest.identifier): the app gets no "
                    + "ID token; add \(missing) to the manifest, or take it out of oidcScopes"
            )
        }
    }

    /// Every key with its value. It is `null` if the key is absent and has no default, or if the key is about a
    /// provider and the device has none.
    private func settings() throws -> [String: JSONValue] {
        let settings = try JSONDecoder().decode([String: JSONValue].self, from: JSONEncoder().encode(configuration))
        return Dictionary(uniqueKeysWithValues: ManagedConfiguration.keyNames.map { ($0, settings[$0] ?? .null) })
    }

    /// The report for people: warnings, every key with its value and meaning, and the apps.
    func text() throws -> String {
        var lines = ["The device is \(configuration.mode.rawValue). The file is valid."]
        lines += warnings.map { "warning: \($0)" } + [""]
        let settings = try settings()
        let meanings = configuration.meanings
        let width = meanings.map(\.key.count).max() ?? 0
        for (name, meaning) in meanings {
            let value = Self.text(of: settings[name] ?? .null)
            lines.append(Terminal.bold(name) + String(repeating: " ", count: width + 2 - name.count) + value)
            lines.append("    " + meaning.printable)
        }
        if !manifests.manifests.isEmpty {
            lines += ["", "Apps:"]
            for manifest in manifests.manifests {
                lines.append("\(manifest.identifier)  \(manifest.identity)")
                if let file = manifests.files[manifest.identifier] { lines.append("    from \(file.printable)") }
                lines += (manifest.cleanup?.delete ?? []).map(Self.deletion)
            }
        }
        if !manifests.masks.isEmpty {
            lines += ["", "Masks of packages' manifests:"] + manifests.masks.map(\.printable)
        }
        return lines.joined(separator: "\n")
    }

    private static func text(of value: JSONValue) -> String {
        let parts: [String]
        switch value {
        case .boolean(let value): return "\(value)"
        case .number(let number): return Int(exactly: number).map { "\($0)" } ?? "\(number)"
        case .string(let text): return text
        case .array(let elements): parts = elements.map { text(of: $0) }
        case .object(let members): parts = members.sorted { $0.key < $1.key }.map { "\($0.key) \(text(of: $0.value))" }
        case .null: parts = []
        }
        return parts.isEmpty ? "-" : parts.joined(separator: ", ")
    }

    /// Marks a path where there is nothing, which may be misspelt. A path that this user may not read is not marked.
    private static func deletion(of path: String) -> String {
        var status = stat()
        let isMissing = lstat(path, &status) != 0 && errno == ENOENT
        return "    deletes \(path.printable)\(isMissing ? " (nothing is there yet)" : "")"
    }

    /// The report for programs. The properties' names are the keys, which programs rely on.
    func json() throws -> String {
        try Form.json(
            Content(
                valid: problems.isEmpty,
                mode: configuration.mode.rawValue,
                settings: try settings(),
                apps: manifests.manifests.map { ReportedApp($0, file: manifests.files[$0.identifier]) },
                masks: manifests.masks,
                problems: problems,
                warnings: warnings
            )
        )
    }

    private struct Content: Encodable {
        let valid: Bool
        let mode: String
        let settings: [String: JSONValue]
        let apps: [ReportedApp]
        let masks: [String]
        let problems: [ManagedConfigurationError]
        let warnings: [KeyWarning]
    }
}

/// The problems of an invalid configuration, for programs, in the format of a report.
private struct InvalidConfiguration: Encodable {
    let valid = false
    let problems: [ManagedConfigurationError]
}

private struct ReportedApp: Encodable {
    let id: String
    let file: String?
    let executable: String?
    let user: UInt32?
    let unit: String?
    let appArmor: String?
    let flatpak: String?
    let busName: String?
    let stores: [String]
    let deletes: [String]
    let sharedDeviceModeSupported: Bool

    init(_ manifest: AppManifest, file: String?) {
        id = manifest.identifier
        self.file = file
        busName = manifest.busName
        stores = manifest.stores
        let identity = manifest.identity
        (executable, user, unit) = (identity.executable, identity.user, identity.unit)
        (appArmor, flatpak) = (identity.appArmor, identity.flatpak)
        deletes = manifest.cleanup?.delete ?? []
        sharedDeviceModeSupported = manifest.supportsSharedDeviceMode
    }
}
