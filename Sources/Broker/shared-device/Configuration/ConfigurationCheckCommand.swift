import ArgumentParser
import Glibc
import SharedDeviceBroker

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
