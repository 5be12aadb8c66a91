import Basics
public import FoundationEssentials
import Glibc
@_spi(Extensions) import SharedDevice
import Synchronization

/// The manifests that are in force.
public struct AppManifests: Sendable, Equatable {
    /// The enrolled apps, in the order of their files' names. Their identifiers are unique.
    public internal(set) var manifests: [AppManifest] = []
    /// The problems of files or of the directory. A problem of one file does not affect the others.
    public internal(set) var problems: [ManagedConfigurationError] = []
    /// The contents of the files in force, by file name. The next start passes them to
    /// ``AppManifestDirectory/updates(kept:quietPeriod:)``.
    public internal(set) var contents: [String: Data] = [:]
    /// The file that counts for each app, by identifier.
    public internal(set) var files: [String: String] = [:]
    /// The paths of invalid files, or of the directory, without known valid content. It is unknown which apps they are
    /// about.
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

/// Decides which manifests are in force after each reading of the directory. Pure.
///
/// A file that becomes invalid keeps its last valid manifest in force, as the configuration does, because the app still
/// holds data.
struct AppManifestMonitor: Sendable {
    struct Reading: Sendable {
        let name: String
        let path: String
        let manifest: Result<Valid, ManagedConfigurationError>
    }

    struct Valid: Sendable {
        let manifest: AppManifest
        let content: Data
    }

    private var valid: [String: Valid] = [:]
    private var latest: AppManifests?
    /// The stored contents, which stay stored while the directory cannot be read.
    private let kept: [String: Data]
    /// The files that every reading so far has found. A file that was absent in between counts as new.
    private var lasting: Set<String>?

    init(kept: [String: Data] = [:]) { self.kept = kept }

    /// Whether there are problems. A problem may disappear without a change in the directory, such as a user that the
    /// system did not know for a moment.
    var hasProblems: Bool { latest?.problems.isEmpty == false }

    /// The manifests in force after this reading; `nil` if nothing has changed.
    ///
    /// - Parameters:
    ///   - readings: The result for each file in the directory; the error if the directory cannot be used.
    ///   - last: The manifests that were valid before this program started, by file name. Only needed if something is
    ///     invalid now.
    mutating func directoryWasRead(
        _ readings: Result<[Reading], ManagedConfigurationError>,
        last: [String: Valid] = [:]
    ) -> AppManifests? {
        let next: AppManifests
        switch readings {
        case .success(let readings):
            next = merge(readings, last)
        case .failure(let problem):
            // Use the last known contents, and keep the state as it was before this reading.
            var before = self
            let former = last.map { Reading(name: $0, path: $0, manifest: .success($1)) }
            next = AppManifests(
                manifests: latest?.manifests ?? before.merge(former, [:]).manifests,
                problems: [problem],
                contents: latest?.contents ?? kept,
                files: latest?.files ?? [:],
                unknown: latest.map(\.unknown) ?? [problem.file]
            )
        }
        guard next != latest else { return nil }
        latest = next
        return next
    }

    private mutating func merge(_ readings: [Reading], _ last: [String: Valid]) -> AppManifests {
        let names = Set(readings.map(\.name))
        let lasting = lasting.map { $0.intersection(names) } ?? names
        self.lasting = lasting
        var problems: [ManagedConfigurationError] = []
        var kept: [String: Valid] = [:]
        var unknown: [String] = []
        // Contents that stay stored, because the system may not know a user for a moment.
        var unread: [String: Data] = [:]
        var owners: [String: String] = [:]
        var manifests: [AppManifest] = []
        for reading in readings.sorted(by: { $0.name < $1.name }) {
            let inForce: Valid
            switch reading.manifest {
            case .success(let current):
                inForce = current
            case .failure(let problem):
                problems.append(problem)
                let isLasting = lasting.contains(reading.name)
                guard let former = valid[reading.name] ?? (isLasting ? last[reading.name] : nil) else {
                    unknown.append(reading.path)
                    if isLasting { unread[reading.name] = self.kept[reading.name] }
                    continue
                }
                inForce = former
            }
            let manifest = inForce.manifest
            if let owner = owners[manifest.identifier] {
                problems.append(.duplicate(manifest.identifier, in: reading.path, and: owner))
                continue
            }
            owners[manifest.identifier] = reading.path
            kept[reading.name] = inForce
            manifests.append(manifest)
        }
        valid = kept
        return AppManifests(
            manifests: manifests,
            problems: problems,
            contents: kept.mapValues(\.content).merging(unread) { inForce, _ in inForce },
            files: owners,
            unknown: unknown
        )
    }
}

extension ManagedConfigurationError {
    fileprivate static func duplicate(
        _ identifier: String,
        in file: String,
        and other: String
    ) -> ManagedConfigurationError {
        var error = ManagedConfigurationError(
            .contradiction,
            file: file,
            key: "id",
            message: "\(other) is the manifest of \(identifier), and this one does not count",
            remedy: "remove one of the two"
        )
        error.app = identifier
        return error
    }
}

/// The administrator's directory of manifests, and that of the packages: the files whose names end in `.json` and do
/// not begin with a dot.
///
/// A file of the administrator replaces the package's file of the same name. If it is empty, neither counts. A missing
/// directory has no files. That is not an error.
public struct AppManifestDirectory: Sendable {
    /// The default path of the administrator's manifests on a device.
    public static let defaultPath = ManagedConfigurationFile().appManifestDirectory
    /// The path of the packages' manifests on a device.
    public static let packagesPath = "/usr/share/shared-device/apps"

    public let path: String

    private let packages: String?
    private let mustBeRoots: Bool

    /// - Parameters:
    ///   - packages: The directory of the packages' manifests. The default belongs to ``defaultPath``; another `path`
    ///     has none.
    ///   - mustBeRoots: Whether the directories and the files have to belong to root, because root acts on their
    ///     content.
    public init(path: String = Self.defaultPath, packages: String? = nil, mustBeRoots: Bool = false) {
        self.path = path
        self.packages = packages ?? (path == Self.defaultPath ? Self.packagesPath : nil)
        self.mustBeRoots = mustBeRoots
    }

    /// The directories. A file replaces one of the same name in an earlier directory.
    private var directories: [String] { [packages, path].compactMap(\.self) }

    /// Reads all manifests. An invalid manifest becomes a problem, and does not hide the valid manifests. Blocks its
    /// thread for the file system.
    public func load() -> AppManifests {
        var monitor = AppManifestMonitor()
        return monitor.directoryWasRead(readings()) ?? AppManifests()
    }

    /// The manifests in force, followed by an update at each change of the manifests or of the problems.
    ///
    /// The first update is the state at the time of the call; from then on no change is missed. A file that becomes
    /// invalid keeps its last valid manifest in force until it is valid again or removed. Changes in quick succession
    /// are merged into one. A slow reader only receives the latest update, which is complete.
    ///
    /// The watch ends when the iterating task is cancelled or the sequence is released. Only one task may iterate.
    ///
    /// - Parameters:
    ///   - kept: The ``AppManifests/contents`` of an earlier run. It replaces the content of files that have become
    ///     invalid since.
    ///   - quietPeriod: How long the directories have to be unchanged before they are read.
    /// - Throws: `ManagedConfigurationError`: `cannotWatch`.
    public func updates(
        kept: [String: Data] = [:],
        quietPeriod: Duration = .milliseconds(250)
    ) throws(ManagedConfigurationError) -> AsyncStream<AppManifests> {
        let monitor = Locked(AppManifestMonitor(kept: kept))
        do {
            return try DirectoryWatcher.updates(of: directories, quietPeriod: quietPeriod) {
                let readings = readings()
                let last = Self.isSound(readings) ? [:] : valid(kept)
                return monitor.withLock { $0.directoryWasRead(readings, last: last) }
            } again: {
                monitor.withLock(\.hasProblems) ? Self.pauseAfterProblem : nil
            }
        } catch {
            throw .cannotWatch(path, error)
        }
    }

    private static let pauseAfterProblem = Duration.seconds(10)

    private static func isSound(_ readings: Result<[AppManifestMonitor.Reading], ManagedConfigurationError>) -> Bool {
        guard case .success(let readings) = readings else { return false }
        return readings.allSatisfy { if case .success = $0.manifest { true } else { false } }
    }

    /// Parsed again each time, because the system may not have known a user before.
    private func valid(_ kept: [String: Data]) -> [String: AppManifestMonitor.Valid] {
        kept.compactMapValues { content in
            let manifest = try? AppManifest(json: content, file: path)
            return manifest.map { AppManifestMonitor.Valid(manifest: $0, content: content) }
        }
    }

    private func readings() -> Result<[AppManifestMonitor.Reading], ManagedConfigurationError> {
        Result { () throws(ManagedConfigurationError) in
            var holders: [String: [String]] = [:]
            for directory in directories {
                for name in try names(in: directory) { holders[name, default: []].append(directory) }
            }
            return holders.compactMap { name, holders in
                holders.last.flatMap { reading(name, in: $0, replacesAnother: holders.count > 1) }
            }
        }
    }

    /// - Returns: `nil` if the file has been removed since, or masks another.
    private func reading(
        _ name: String,
        in directory: String,
        replacesAnother: Bool
    ) -> AppManifestMonitor.Reading? {
        let path = directory.hasSuffix("/") ? directory + name : directory + "/" + name
        let file = AdministratorFile(
            path: path,
            maximumSize: 65_536,
            decides: "which program is the app",
            mustBeRoots: mustBeRoots
        )
        var content: Data?
        do throws(ManagedConfigurationError) {
            content = try file.read()
            guard let content, !(content.isEmpty && replacesAnother) else { return nil }
            let manifest = try AppManifest(json: content, file: path)
            let valid = AppManifestMonitor.Valid(manifest: manifest, content: content)
            return AppManifestMonitor.Reading(name: name, path: path, manifest: .success(valid))
        } catch {
            var problem = error
            problem.app = content.flatMap { Self.identifier(in: $0) }
            return AppManifestMonitor.Reading(name: name, path: path, manifest: .failure(problem))
        }
    }

    /// The app of an invalid manifest, if the manifest names it.
    private static func identifier(in json: Data) -> String? {
        (try? JSONValue(parsing: [UInt8](json), limits: JSONLimits(size: json.count)))?["id"]?.string
    }

    private func names(in path: String) throws(ManagedConfigurationError) -> [String] {
        var info = stat()
        guard stat(path, &info) == 0 else {
            let code = errno
            if code == ENOENT || code == ENOTDIR { return [] }
            throw unreadable(path, String(cString: strerror(code)))
        }
        guard info.st_mode & S_IWOTH == 0 else { throw .writableByAnyone(path, decides: "which apps are enrolled") }
        if mustBeRoots, !info.isRootsAlone { throw .notRoots(path, info, decides: "which apps are enrolled") }
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
        ManagedConfigurationError(
            .unreadable,
            file: path,
            message: message,
            remedy: "make it a directory that the broker's user may read"
        )
    }
}
