import ArgumentParser
import Foundation
import Glibc
import SharedDeviceBroker

struct ConfigurationCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "configuration",
        abstract: "Looks at what the device's management has set.",
        subcommands: [ConfigurationCheckCommand.self]
    )
}

struct ConfigurationCheckCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "check",
        abstract: "Says what a configuration file means, without a broker.",
        discussion: """
            Prints every key with its value, defaults filled in, the apps that have a manifest, and what is probably not \
            meant. The file may be a JSON object or an Apple property list: a .mobileconfig profile, one payload of it, or \
            the keys alone.
            Exit status: 0 the broker would take it; 65 it would not, or a manifest is bad; 66 there is no such file, or it \
            cannot be read.
            """
    )

    @Argument(help: ArgumentHelp("The configuration.", valueName: "file"))
    var file: String

    @Option(
        help: ArgumentHelp(
            "The directory of the apps' manifests.",
            discussion: "Otherwise apps, beside the file; it need not exist.",
            valueName: "dir"
        )
    )
    var apps: String?

    @Flag(help: "As a JSON object, for programs.")
    var json = false

    func run() throws {
        try reportingFailure {
            let source = ManagedConfigurationFile(path: file)
            guard let document = try document(source) else {
                throw CommandFailure(status: EX_NOINPUT, description: "there is no file \(file)")
            }
            let directory = AppManifestDirectory(path: apps ?? source.appManifestDirectory)
            let report = ConfigurationReport(document, directory.load(), directory: directory.path)
            print(json ? try report.json() : report.text())
            for problem in report.problems { warn("\(problem)") }
            if !report.problems.isEmpty { throw ExitCode(EX_DATAERR) }
        }
    }

    /// An error goes to standard output too where programs read that.
    private func document(_ source: ManagedConfigurationFile) throws -> ManagedConfigurationDocument? {
        do throws(ManagedConfigurationError) {
            return try source.document()
        } catch {
            if json { print(try InvalidConfiguration(error).json()) }
            throw error
        }
    }
}

/// What a valid configuration means, together with the manifests.
struct ConfigurationReport {
    private let document: ManagedConfigurationDocument
    private let manifests: AppManifests
    private let directory: String

    init(_ document: ManagedConfigurationDocument, _ manifests: AppManifests, directory: String) {
        self.document = document
        self.manifests = manifests
        self.directory = directory
    }

    /// What is wrong with manifests.
    var problems: [ManagedConfigurationError] { manifests.problems }

    private var warnings: [ReportedWarning] {
        let ofManifests = manifests.manifests.flatMap { manifest in
            manifest.unknownKeys.map { key in
                let meant = AppManifest.suggestion(forUnknownKey: key).map { "; is “\($0)” meant?" } ?? ""
                return ReportedWarning(
                    key: key,
                    message: "means nothing in the manifest of \(manifest.identifier)\(meant)"
                )
            }
        }
        let ofLists = AppEligibility(lists: document.configuration.eligibility, manifests: manifests.manifests).warnings
        return document.warnings.map { ReportedWarning(key: $0.key, message: $0.message) } + ofManifests
            + ofLists.map { ReportedWarning(key: nil, message: $0) }
    }

    /// For people: every key with its value, the apps, and the warnings.
    func text() -> String {
        let configuration = document.configuration
        var lines = ["The device is \(configuration.mode.rawValue). The file is valid (\(document.format.name)).", ""]
        let width = ConfigurationKey.allCases.map(\.rawValue.count).max() ?? 0
        for (key, value) in configuration.settings {
            // An array's elements are below one another.
            for (number, line) in value.lines.enumerated() {
                let name = number == 0 ? key.rawValue : ""
                lines.append(name + String(repeating: " ", count: width + 2 - name.count) + line)
            }
        }
        if !manifests.manifests.isEmpty {
            lines += ["", "Apps in \(directory):"]
            lines += manifests.manifests.map {
                "\($0.identifier)  \($0.identity)"
            }
        }
        if !warnings.isEmpty { lines.append("") }
        lines += warnings.map { "warning: \($0.key.map { "\"\($0)\" " } ?? "")\($0.message)" }
        return lines.joined(separator: "\n")
    }

    /// For programs. The properties' names are the keys, which programs rely on.
    func json() throws -> String {
        let configuration = document.configuration
        return try jsonText(
            Content(
                valid: problems.isEmpty,
                format: document.format.rawValue,
                mode: configuration.mode.rawValue,
                settings: Dictionary(uniqueKeysWithValues: configuration.settings.map { ($0.key.rawValue, $0.value) }),
                apps: manifests.manifests.map(ReportedApp.init),
                problems: problems.map(ReportedProblem.init),
                warnings: warnings
            )
        )
    }

    private struct Content: Encodable {
        let valid: Bool
        let format: String
        let mode: String
        let settings: [String: ConfigurationValue]
        let apps: [ReportedApp]
        let problems: [ReportedProblem]
        let warnings: [ReportedWarning]
    }
}

/// What is wrong with a configuration, for programs, in the shape of a report.
struct InvalidConfiguration: Encodable {
    private let valid = false
    private let problems: [ReportedProblem]

    init(_ error: ManagedConfigurationError) { problems = [ReportedProblem(error)] }

    func json() throws -> String { try jsonText(self) }

    private enum CodingKeys: CodingKey {
        case valid
        case problems
    }
}

private struct ReportedProblem: Encodable {
    let code: String
    let file: String
    let key: String?
    let message: String
    let remedy: String

    init(_ error: ManagedConfigurationError) {
        code = error.code.description
        file = error.file
        key = error.key
        message = error.message
        remedy = error.remedy
    }
}

private struct ReportedApp: Encodable {
    let id: String
    let executable: String?
    let user: UInt32?
    let unit: String?
    let appArmor: String?
    let flatpak: String?
    let busName: String?
    let stores: [String]
    let sharedDeviceModeSupported: Bool

    init(_ manifest: AppManifest) {
        id = manifest.identifier
        executable = manifest.identity.executable
        user = manifest.identity.user
        unit = manifest.identity.unit
        appArmor = manifest.identity.appArmor
        flatpak = manifest.identity.flatpak
        busName = manifest.busName
        stores = manifest.stores
        sharedDeviceModeSupported = manifest.supportsSharedDeviceMode
    }
}

private struct ReportedWarning: Encodable {
    let key: String?
    let message: String
}

private func jsonText(_ value: some Encodable) throws -> String {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
    return String(decoding: try encoder.encode(value), as: UTF8.self)
}

extension ConfigurationValue {
    /// The value as a person reads it; one line or more.
    fileprivate var lines: [String] {
        switch self {
        case .boolean(let value): ["\(value)"]
        case .integer(let value): ["\(value)"]
        case .number(let value): ["\(value)"]
        case .string(let value): [value]
        case .array(let elements): elements.isEmpty ? ["-"] : elements.flatMap(\.lines)
        case .dictionary, .null, .other: ["-"]
        }
    }
}
