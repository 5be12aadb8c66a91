import ArgumentParser
import Basics
import BrokerCore
import CommandParts
import DeviceConfiguration
import DeviceStorage
import FoundationEssentials
import Glibc
@_spi(Extensions) import SharedDevice
import SharedDeviceBroker
import SharedDeviceTestKit

struct AppsEnrolCommand: ReportingCommand {
    static let configuration = CommandConfiguration(
        commandName: "enrol",
        abstract: "Writes an app's manifest, by which the broker knows its program.",
        discussion: """
            The broker reads the manifest at once; where it requires enrolment, only apps with a manifest take part. On a bus that \
            several users reach, a manifest counts only with --user. The other keys of a manifest are in \
            Documentation/AppManifests.md.
            """
    )

    @Argument(help: ArgumentHelp("The app's program: a path, or a name to look up in PATH.", valueName: "program"))
    var program: String

    @Option(
        help: ArgumentHelp(
            "The identifier that the app gives to SharedDeviceApplication, such as org.example.orders.",
            discussion: "By default the identifier that this device has for the program, if it has run here."
        )
    )
    var id: String?

    @Option(help: ArgumentHelp("The user that the app runs as. By default any user.", valueName: "name"))
    var user: String?

    @Option(help: ArgumentHelp("The name by which the bus starts the app.", valueName: "name"))
    var busName: String?

    @Option(
        help: ArgumentHelp(
            "The directory of the manifests.",
            discussion: "By default \(AppManifestDirectory.defaultPath).",
            valueName: "dir"
        )
    )
    var apps: String?

    @Flag(help: "Replace the app's manifest if there is one.")
    var force = false

    @OptionGroup var state: StateOptions

    func execute() throws {
        let executable = try executable()
        let directory = AppManifestDirectory(path: apps ?? AppManifestDirectory.defaultPath)
        guard let identifier = id ?? knownIdentifier(of: executable) else {
            let name = URL(fileURLWithPath: executable).lastPathComponent
            let example = "--id org.example.\(name)"
            throw CommandFailure(
                EX_USAGE,
                "the identifier of \(executable) is not known; give the app's own, for instance: \(example)"
            )
        }
        let file = "\(directory.path)/\(identifier).json"
        let content = try Form.json(Manifest(id: identifier, executable: executable, user: user, busName: busName))
        // The same validation as the broker's.
        _ = try AppManifest(json: Data(content.utf8), file: file)
        try checkIsFree(identifier, file, directory)
        try write(content + "\n", to: file)
        try emit("wrote \(file)")
    }

    /// The property names are the manifest's keys.
    private struct Manifest: Encodable {
        let id: String
        let executable: String
        let user: String?
        let busName: String?
    }

    private func checkIsFree(
        _ identifier: String,
        _ file: String,
        _ directory: AppManifestDirectory
    ) throws(CommandFailure) {
        if access(file, F_OK) == 0 {
            if force { return }
            throw CommandFailure(EX_CANTCREAT, "\(file) is there already; --force replaces it")
        }
        guard let other = directory.load().files[identifier] else { return }
        let name = URL(fileURLWithPath: other).lastPathComponent
        guard other != "\(directory.path)/\(name)" else {
            throw CommandFailure(EX_CANTCREAT, "\(other) is the manifest of \(identifier); edit that one, or remove it")
        }
        // A package's manifest, which a file of the same name replaces.
        let isReplaced = name == "\(identifier).json"
        if isReplaced, force { return }
        throw CommandFailure(
            EX_CANTCREAT,
            "\(other) is the manifest of \(identifier); "
                + (isReplaced ? "--force replaces it" : "to replace it, write a manifest to \(directory.path)/\(name)")
        )
    }

    /// The identifier of this program in the device's ledger; `nil` if it is not clear. Root reads only its own
    /// database: to open another user's, it would drop the rights that it needs to write the manifest.
    private func knownIdentifier(of executable: String) -> String? {
        var information = stat()
        guard stat(state.path, &information) == 0, information.st_uid == geteuid(),
            let database = try? state.openDatabase(.existing), let content = try? DeviceStore.read(database)
        else { return nil }
        let keys = content.ledger.parts.values.flatMap { $0.keys.map(\.app) }
        let found = Set(keys.filter { $0.contains(" (\(executable), uid ") }.map(AppNames.identifier))
        return found.count == 1 ? found.first : nil
    }

    // MARK: Files

    /// The program's absolute path without symbolic links, as the kernel reports it for a process.
    private func executable() throws(CommandFailure) -> String {
        let folders = (ProcessInfo.processInfo.environment["PATH"] ?? "").split(separator: ":")
        let candidates = program.contains("/") ? [program] : folders.map { "\($0)/\(program)" }
        guard let found = candidates.first(where: { isFile($0) && access($0, X_OK) == 0 }) else {
            throw CommandFailure(
                EX_NOINPUT,
                "\(program) is no program that can be run; name its file, with the whole path"
            )
        }
        guard !ProgramStart.isScript(found) else {
            throw CommandFailure(
                EX_DATAERR,
                "\(program) is a script: its process is the interpreter, which also runs other scripts; write a manifest "
                    + "with \"unit\", \"appArmor\" or \"flatpak\" for it"
            )
        }
        return pathWithoutLinks(found)
    }

    private func write(_ content: String, to file: String) throws(CommandFailure) {
        let remedy = geteuid() == 0 ? nil : "run it as root, or name the directory that your broker reads with --apps"
        do {
            try FileManager.default.createDirectory(
                at: URL(fileURLWithPath: file).deletingLastPathComponent(),
                withIntermediateDirectories: true
            )
        } catch {
            // The replacement would only say that there is no such directory.
            let end = remedy.map { "; \($0)" } ?? ""
            throw CommandFailure(EX_CANTCREAT, "cannot write \(file): \(systemReason(error))\(end)")
        }
        try replaceFile(file, by: content, remedy: remedy)
    }
}
