import Basics
public import FoundationEssentials
import Glibc
@_spi(Extensions) import SharedDevice
import Synchronization

/// The manifests that are in force.
public struct AppManifests: Sendable, Equatable {
    /// The enrolled apps, in the order of their files' names. Their identifiers are unique.
    public internal(set) var manifests: [AppManifest] = []
    /// The problems of files or of a directory. A problem of one file does not affect the others.
    public internal(set) var problems: [ManagedConfigurationError] = []
    /// The contents of the files in force: the administrator's by file name, the packages' by path. The next start
    /// passes them to ``AppManifestDirectory/updates(kept:quietPeriod:)``.
    public internal(set) var contents: [String: Data] = [:]
    /// The file that counts for each app, by identifier.
    public internal(set) var files: [String: String] = [:]
    /// The administrator's files that mask the packages' files of the same names.
    public internal(set) var masks: [String] = []
    /// The paths of invalid files without known valid content, and of directories that could not be read since the
    /// start. It is unknown which apps they are about.
    public internal(set) var unknown: [String] = []

    /// The problems that an app's adapter has to report: those of the app's manifest and of the directory, but not
    /// those of other apps.
    ///
    /// - Returns: The problems, and whether the app's manifest is among them.
    public func problems(of app: String) -> (told: [ManagedConfigurationError], isRefused: Bool) {
        func isFile(_ problem: ManagedConfigurationError) -> Bool { problem.file.hasSuffix(".json") }
        let own = problems.filter { $0.app.map { $0 == app } ?? $0.file.hasSuffix("/\(app).json") }
        // If the app has no manifest, a file that names no app may be meant for it.
        let isKnown = !own.isEmpty || manifests.contains { $0.identifier == app }
        let others = problems.filter { $0.app == nil && !own.contains($0) && !(isKnown && isFile($0)) }
        return (others + own, !own.isEmpty)
    }
}

/// Decides which manifests are in force after each reading of the directories. Pure.
///
/// A file that becomes invalid keeps its last valid manifest in force, as the configuration does, because the app still
/// holds data. A directory that can no longer be used keeps its last reading in force.
struct AppManifestMonitor: Sendable {
    /// The content of a file. It is `nil` in a mask: the package's file of the same name does not count.
    typealias File = Result<Valid?, ManagedConfigurationError>

    struct Valid: Sendable {
        let manifest: AppManifest
        let content: Data
    }

    /// A directory of manifests.
    struct Folder: Sendable {
        let path: String
        let isOfPackages: Bool

        func file(_ name: String) -> String { path.hasSuffix("/") ? path + name : path + "/" + name }

        /// The key of a file's content. Files of the same name in the two directories have different keys.
        func key(_ name: String) -> String { isOfPackages ? file(name) : name }

        /// The name of the file with this key; `nil` if the file is in another directory.
        func name(of key: String) -> String? {
            let prefix = isOfPackages ? file("") : ""
            guard key.hasPrefix(prefix) else { return nil }
            let name = String(key.dropFirst(prefix.count))
            return name.contains("/") ? nil : name
        }
    }

    /// A reading of a directory: its files by name, or the error if the directory cannot be used.
    struct Reading: Sendable {
        let folder: Folder
        let files: Result<[String: File], ManagedConfigurationError>
    }

    private var valid: [String: Valid] = [:]
    private var latest: AppManifests?
    /// The stored contents, which stay stored while a directory cannot be read.
    private let kept: [String: Data]
    /// The files that every reading of a directory has found, by its path. A file that was absent counts as new.
    private var lasting: [String: Set<String>] = [:]
    /// The last reading of each directory that could be used, by path.
    private var usable: [String: [String: File]] = [:]

    init(kept: [String: Data] = [:]) { self.kept = kept }

    /// A problem may disappear without a change in a directory: the system did not know a user for a moment.
    var hasProblems: Bool { latest?.problems.isEmpty == false }

    /// The manifests in force after this reading; `nil` if nothing has changed.
    ///
    /// - Parameters:
    ///   - readings: The readings of the directories. A file replaces one of the same name, and a manifest one of the
    ///     same identifier, in a later directory.
    ///   - last: The manifests that were valid before this program started, by key. Only needed if something is
    ///     invalid now.
    mutating func directoriesWereRead(_ readings: [Reading], last: [String: Valid] = [:]) -> AppManifests? {
        let next = merge(readings, last)
        guard next != latest else { return nil }
        latest = next
        return next
    }

    private mutating func merge(_ directories: [Reading], _ last: [String: Valid]) -> AppManifests {
        var next = AppManifests()
        var inForce: [String: Valid] = [:]
        var counted: [(name: String, manifest: AppManifest)] = []
        var replaced: Set<String> = []
        for directory in directories {
            let folder = directory.folder
            let files = current(directory, last, &next)
            let isUsable = if case .success = directory.files { true } else { false }
            for (name, file) in files.sorted(by: { $0.key < $1.key }) where !replaced.contains(name) {
                let (key, path) = (folder.key(name), folder.file(name))
                let manifest: Valid
                switch file {
                case .success(nil):
                    next.masks.append(path)
                    continue
                case .success(let current?): manifest = current
                case .failure(let problem):
                    // The problem of a directory that cannot be used stands for those of its files.
                    if isUsable { next.problems.append(problem) }
                    let isLasting = lasting[folder.path]?.contains(name) == true
                    guard let former = valid[key] ?? (isLasting ? last[key] : nil) else {
                        next.unknown.append(path)
                        // It stays stored, because the system may not know a user for a moment.
                        if isLasting { next.contents[key] = kept[key] }
                        continue
                    }
                    manifest = former
                }
                let identifier = manifest.manifest.identifier
                if let owner = next.files[identifier] {
                    var problem = ManagedConfigurationError(
                        .contradiction,
                        path,
                        key: "id",
                        "\(owner) is the manifest of \(identifier), and this one does not count",
                        remedy: "remove one of the two; an administrator's file of the same name replaces or masks a "
                            + "package's"
                    )
                    problem.app = identifier
                    next.problems.append(problem)
                    continue
                }
                next.files[identifier] = path
                next.contents[key] = manifest.content
                inForce[key] = manifest
                counted.append((name, manifest.manifest))
            }
            replaced.formUnion(files.keys)
        }
        valid = inForce
        next.manifests = counted.sorted { $0.name < $1.name }.map { $0.manifest }
        return next
    }

    /// The files of a directory that count: those of the last reading while the directory cannot be used, and at the
    /// start those that an earlier run has stored.
    private mutating func current(
        _ directory: Reading,
        _ last: [String: Valid],
        _ next: inout AppManifests
    ) -> [String: File] {
        let folder = directory.folder
        switch directory.files {
        case .success(let files):
            let names = Set(files.keys)
            lasting[folder.path] = lasting[folder.path].map { $0.intersection(names) } ?? names
            usable[folder.path] = files
            return files
        case .failure(let problem):
            next.problems.append(problem)
            if let former = usable[folder.path] { return former }
            next.unknown.append(problem.file)
            for (key, content) in kept where folder.name(of: key) != nil { next.contents[key] = content }
            let stored = last.compactMap { key, valid in folder.name(of: key).map { ($0, File.success(valid)) } }
            return Dictionary(uniqueKeysWithValues: stored)
        }
    }
}

/// The administrator's directory of manifests, and that of the packages: the files whose names end in `.json` and do
/// not begin with a dot. A missing directory has no files.
///
/// A file of the administrator replaces the package's file of the same name, or masks it with `{"masked": true}`.
public struct AppManifestDirectory: Sendable {
    /// The default path of the administrator's manifests on a device.
    public static let defaultPath = ManagedConfigurationFile().appManifestDirectory
    /// The path of the packages' manifests on a device.
    public static let packagesPath = "/usr/share/shared-device/apps"

    public let path: String

    private let packages: String?
    private let mustBeRoots: Bool

    /// - Parameters:
    ///   - packages: The directory of the packages' manifests. The default belongs to ``defaultPath`` only.
    ///   - mustBeRoots: Whether everything has to belong to root, because root acts on the content.
    public init(path: String = Self.defaultPath, packages: String? = nil, mustBeRoots: Bool = false) {
        var path = path
        while path.count > 1, path.hasSuffix("/") { path.removeLast() }
        self.path = path
        self.packages = packages ?? (path == Self.defaultPath ? Self.packagesPath : nil)
        self.mustBeRoots = mustBeRoots
    }

    /// The directories. A file replaces one of the same name in a later directory.
    private var folders: [AppManifestMonitor.Folder] {
        let ofPackages = packages.map { AppManifestMonitor.Folder(path: $0, isOfPackages: true) }
        return [.init(path: path, isOfPackages: false)] + [ofPackages].compactMap(\.self)
    }

    /// Reads all manifests. An invalid one becomes a problem. Blocks its thread for the file system.
    public func load() -> AppManifests {
        var monitor = AppManifestMonitor()
        return monitor.directoriesWereRead(readings()) ?? AppManifests()
    }

    /// The manifests in force, followed by an update at each change of the manifests or of the problems.
    ///
    /// It follows files as ``ManagedConfigurationFile/updates(quietPeriod:)`` does. A file that becomes invalid keeps
    /// its last valid manifest in force until it is valid again or removed.
    ///
    /// - Parameters:
    ///   - kept: The ``AppManifests/contents`` of an earlier run, for files that have become invalid since.
    ///   - quietPeriod: How long the directories have to be unchanged before they are read.
    public func updates(
        kept: [String: Data] = [:],
        quietPeriod: Duration = .milliseconds(250)
    ) throws(ManagedConfigurationError) -> AsyncStream<AppManifests> {
        let monitor = Locked(AppManifestMonitor(kept: kept))
        do {
            return try DirectoryWatcher.updates(of: folders.map(\.path), quietPeriod: quietPeriod) {
                let readings = readings()
                let last = Self.isSound(readings) ? [:] : valid(kept)
                return monitor.withLock { $0.directoriesWereRead(readings, last: last) }
            } again: {
                monitor.withLock(\.hasProblems) ? Self.pauseAfterProblem : nil
            }
        } catch {
            throw .cannotWatch(path, error)
        }
    }

    private static let pauseAfterProblem = Duration.seconds(10)

    private static func isSound(_ directories: [AppManifestMonitor.Reading]) -> Bool {
        directories.allSatisfy { directory in
            guard let files = try? directory.files.get() else { return false }
            return files.values.allSatisfy { if case .success = $0 { true } else { false } }
        }
    }

    /// Parsed again each time, because the system may not have known a user before.
    private func valid(_ kept: [String: Data]) -> [String: AppManifestMonitor.Valid] {
        kept.compactMapValues { content in
            let manifest = try? AppManifest(json: content, file: path)
            return manifest.map { AppManifestMonitor.Valid(manifest: $0, content: content) }
        }
    }

    private func readings() -> [AppManifestMonitor.Reading] {
        folders.map { folder in
            let files = Result { () throws(ManagedConfigurationError) in
                let files = try names(in: folder.path).compactMap { name in file(name, in: folder).map { (name, $0) } }
                return Dictionary(uniqueKeysWithValues: files)
            }
            return AppManifestMonitor.Reading(folder: folder, files: files)
        }
    }

    /// - Returns: `nil` if the file has been removed since.
    private func file(_ name: String, in folder: AppManifestMonitor.Folder) -> AppManifestMonitor.File? {
        let path = folder.file(name)
        let decides = "which program is the app"
        let file = AdministratorFile(path: path, maximumSize: 65_536, decides: decides, mustBeRoots: mustBeRoots)
        var content: Data?
        do throws(ManagedConfigurationError) {
            content = try file.read()
            guard let content else { return nil }
            if !folder.isOfPackages, Self.isMask(content) { return .success(nil) }
            return .success(.init(manifest: try AppManifest(json: content, file: path), content: content))
        } catch {
            var problem = error
            problem.app = content.flatMap(JSONValue.init(file:))?["id"]?.string
            return .failure(problem)
        }
    }

    /// An empty file is no mask, because a write that failed leaves one.
    private static func isMask(_ json: Data) -> Bool {
        JSONFlaw.find(in: [UInt8](json)) == nil && JSONValue(file: json) == .object(["masked": .boolean(true)])
    }

    private func names(in path: String) throws(ManagedConfigurationError) -> [String] {
        var info = stat()
        guard stat(path, &info) == 0 else {
            let code = errno
            if code == ENOENT || code == ENOTDIR { return [] }
            throw unreadable(path, String(cString: strerror(code)))
        }
        try info.checkWriters(path, decides: "which apps are enrolled", mustBeRoots: mustBeRoots)
        do {
            return try FileManager.default.contentsOfDirectory(atPath: path)
                .filter { $0.hasSuffix(".json") && !$0.hasPrefix(".") }
        } catch {
            // The directory may have been removed since.
            guard access(path, F_OK) == 0 else { return [] }
            throw unreadable(path, systemReason(error))
        }
    }

    private func unreadable(_ path: String, _ message: String) -> ManagedConfigurationError {
        .init(.unreadable, path, message, remedy: "make it a directory that the broker's user may read")
    }
}
