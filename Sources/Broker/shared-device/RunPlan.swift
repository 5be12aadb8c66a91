import AppAdapters
import CommandParts
import DeviceConfiguration
import FoundationEssentials
import Glibc
@_spi(Extensions) import SharedDevice

extension AdapterPreset {
    /// The presets that `run` accepts. A Flatpak has its own place for data.
    static var names: String { allCases.filter { $0 != .flatpak }.map(\.rawValue).joined(separator: ", ") }
}

extension SystemUser {
    static func ofThisProcess() throws(CommandFailure) -> SystemUser {
        do throws(LookupFailure) {
            return try SystemUser(number: geteuid())
        } catch {
            throw CommandFailure(EX_UNAVAILABLE, "\(error)")
        }
    }
}

/// The meaning of the command line, checked before anything is started or deleted.
struct RunPlan {
    let name: String
    let data: String
    let start: AppCleanup.Start
    let settings: OwnedCommand.Settings
    /// The directories that are known to belong to the app.
    let directories: RunDirectories

    /// - Parameter state: The directory of the app's record, which must survive the deletion.
    init(_ options: RunCommand, keeping state: String) throws(CommandFailure) {
        func refuse(_ text: String) -> CommandFailure { CommandFailure(EX_USAGE, text) }
        guard AppIdentifier.isReverseDNS(options.app) else {
            throw refuse("“\(options.app)” is no identifier; write one such as org.example.browser")
        }
        guard let start = AppCleanup.Start(rawValue: options.start) else {
            throw refuse("--start is nobody, signed-in or always, and not “\(options.start)”")
        }
        self.start = start
        let words = options.command.first == "--" ? Array(options.command.dropFirst()) : options.command
        guard let program = words.first, !program.isEmpty else {
            throw refuse("write the program after --, for instance: -- chromium https://example.org")
        }
        name = program
        let preset = options.preset.flatMap(AdapterPreset.init)
        if let text = options.preset, preset == nil || preset == .flatpak {
            throw refuse("--preset is one of \(AdapterPreset.names), and not “\(text)”")
        }
        directories = RunDirectories(state: state)
        let path = URL(fileURLWithPath: options.data).standardizedFileURL.path
        let home = try SystemUser.ofThisProcess().home
        do {
            // Checked as text before it is created, and with its links resolved before anything is deleted.
            try CleanupPath.refusePattern(in: options.data)
            let written = try CleanupPath.checked(path, home: home, keeping: [state])
            try Self.refuseWorkingDirectory(written, options)
            try Self.make(written)
            data = try CleanupPath.checked(pathWithoutLinks(path), home: home, keeping: [pathWithoutLinks(state)])
            // Again, because a link may lead there.
            try Self.refuseWorkingDirectory(data, options)
            try preset?.check(data: data)
        } catch let error as CommandFailure {
            throw error
        } catch {
            throw refuse("--data: \(error)")
        }
        if !options.adopt, !directories.known.contains(data) { try Self.refuseUnknown(data, options) }
        try Self.find(program)
        var settings = OwnedCommand.Settings(
            mark: state,
            command: [program] + (preset?.arguments(data: data) ?? []) + words.dropFirst()
        )
        settings.environment = AdapterEnvironment.variables(data: data).merging(preset?.environment ?? [:]) { $1 }
        settings.directories = AdapterEnvironment.directories(data: data) + (preset?.directories(data: data) ?? [])
        settings.markingWords = preset?.place(data: data) ?? []
        settings.restarts = false
        self.settings = settings
    }

    /// Refuses the working directory: the data of other programs there would be deleted, too.
    private static func refuseWorkingDirectory(_ path: String, _ options: RunCommand) throws(CommandFailure) {
        guard CleanupPath.isSame(FileManager.default.currentDirectoryPath, orBelow: path) else { return }
        throw CommandFailure(
            EX_USAGE,
            "--data: “\(options.data)” is the working directory, or above it; name a directory that only this app uses"
        )
    }

    private static func make(_ path: String) throws(CommandFailure) {
        do throws(AdapterFailure) {
            try ProgramDirectories.make([path])
        } catch {
            throw CommandFailure(EX_CANTCREAT, "--data: \(error)")
        }
    }

    /// Refuses a directory with files that may have been named by mistake.
    private static func refuseUnknown(_ data: String, _ options: RunCommand) throws(CommandFailure) {
        let names: [String]
        do {
            names = try FileManager.default.contentsOfDirectory(atPath: data)
        } catch {
            throw CommandFailure(
                EX_USAGE,
                "--data: could not read \(options.data): \(systemReason(error)); name a directory of this user"
            )
        }
        guard !names.isEmpty else { return }
        throw CommandFailure(
            EX_USAGE,
            "--data: \(options.data) is not empty, and \(options.app) has never used it; name a new directory, "
                + "or add --adopt to have its content deleted after the next session"
        )
    }

    /// Looks for the program as its start does. Without this check, a missing program would be retried endlessly. The
    /// errors have the status that shells use.
    private static func find(_ program: String) throws(CommandFailure) {
        let places = ProcessInfo.processInfo.environment["PATH"] ?? "/bin:/usr/bin"
        let paths =
            program.contains("/")
            ? [program]
            : places.split(separator: ":", omittingEmptySubsequences: false).map {
                $0.isEmpty ? program : "\($0)/\(program)"
            }
        let files = paths.filter(isFile)
        guard let first = files.first else {
            throw CommandFailure(
                127,
                "there is no program \(program)\(program.contains("/") ? "" : " in PATH"); install it, or correct its name"
            )
        }
        guard files.contains(where: { access($0, X_OK) == 0 }) else {
            throw CommandFailure(126, "\(first) may not be run; see its permissions: chmod +x \(first)")
        }
    }
}
