import DBusTransport
package import FoundationEssentials
import Glibc
import StrictJSON
import Synchronization

/// The manifests of a directory, as they are in force.
package struct AppManifests: Sendable, Equatable {
    /// The enrolled apps, in the order of their files' names; no two have one identifier.
    package let manifests: [AppManifest]
    /// What is wrong with files, or with the directory. A file's problem does not touch the others.
    package let problems: [ManagedConfigurationError]
    /// The contents of the files that are in force, by the files' names. The next start hands them to
    /// ``AppManifestDirectory/updates(kept:quietPeriod:)``.
    package let contents: [String: Data]
    /// Paths of files, or of the directory, that are bad, and of which no valid content is known: nobody knows which apps they are about.
    package let unknown: [String]

    package init(
        manifests: [AppManifest] = [],
        problems: [ManagedConfigurationError] = [],
        contents: [String: Data] = [:],
        unknown: [String] = []
    ) {
        self.manifests = manifests
        self.problems = problems
        self.contents = contents
        self.unknown = unknown
    }

    /// What its adapter has to tell of an app: what is wrong with its manifest and with the directory, and nothing of other apps.
    ///
    /// - Returns: the problems, and whether the app's manifest is among them.
    package func problems(of app: String) -> (told: [ManagedConfigurationError], isRefused: Bool) {
        func isFile(_ problem: ManagedConfigurationError) -> Bool { problem.file.hasSuffix(".json") }
        let own = problems.filter { $0.app.map { $0 == app } ?? $0.file.hasSuffix("/\(app).json") }
        // Where the app has no manifest, a file whose app nobody can tell may be meant for it.
        let isKnown = !own.isEmpty || manifests.contains { $0.identifier == app }
        let others = problems.filter { $0.app == nil && !own.contains($0) && !(isKnown && isFile($0)) }
        return (others + own, !own.isEmpty)
    }
}

/// Decides which manifests are in force after each reading of the directory. Pure.
///
/// A file that has become bad keeps its last valid manifest in force, as the configuration does: an app that somebody has
/// just made a mistake about still holds data.
struct AppManifestMonitor: Sendable {
    /// A file's name in the directory, and what it says.
    struct Reading: Sendable {
        let name: String
        let path: String
        let manifest: Result<Valid, ManagedConfigurationError>
    }

    /// A manifest, and what its file says.
    struct Valid: Sendable {
        let manifest: AppManifest
        let content: Data
    }

    private var valid: [String: Valid] = [:]
    private var latest: AppManifests?
    /// What the disk has: it stays there for as long as the directory cannot be read.
    private let kept: [String: Data]
    /// The files that every reading so far has found: one that was gone in between is a new file.
    private var lasting: Set<String>?

    init(kept: [String: Data] = [:]) { self.kept = kept }

    /// Whether something is wrong. It may be over without a change in the directory: the system did not know a user for a moment.
    var hasProblems: Bool { latest?.problems.isEmpty == false }

    /// The manifests in force after this reading; `nil` where that is no news.
    ///
    /// - Parameters:
    ///   - readings: Of each file in the directory; the error where the directory cannot be used.
    ///   - last: What was valid before this program's start, by the names of the files. Only where something is bad now.
    ///   - watchProblem: Why later changes may go unseen.
    mutating func directoryWasRead(
        _ readings: Result<[Reading], ManagedConfigurationError>,
        last: [String: Valid] = [:],
        watchProblem: ManagedConfigurationError? = nil
    ) -> AppManifests? {
        let next: AppManifests
        switch readings {
        case .success(let readings):
            next = merge(readings, last, watchProblem)
        case .failure(let problem):
            // As if the files said what they said last; what this reading has found out of them is nothing.
            var before = self
            let former = last.map { Reading(name: $0, path: $0, manifest: .success($1)) }
            next = AppManifests(
                manifests: latest?.manifests ?? before.merge(former, [:], nil).manifests,
                problems: [problem],
                contents: latest?.contents ?? kept,
                unknown: latest.map(\.unknown) ?? [problem.file]
            )
        }
        guard next != latest else { return nil }
        latest = next
        return next
    }

    private mutating func merge(
        _ readings: [Reading],
        _ last: [String: Valid],
        _ watchProblem: ManagedConfigurationError?
    ) -> AppManifests {
        let names = Set(readings.map(\.name))
        let lasting = lasting.map { $0.intersection(names) } ?? names
        self.lasting = lasting
        var problems = watchProblem.map { [$0] } ?? []
        var kept: [String: Valid] = [:]
        var unknown: [String] = []
        // What the disk goes on having: perhaps the system did not know a user for a moment.
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

/// The directory that the apps' manifests are in: its files whose names end in `.json` and begin with no dot.
///
/// Where the directory is missing, no app is enrolled. That is no error.
package struct AppManifestDirectory: Sendable {
    /// Where the manifests are on a device, unless told otherwise.
    package static let defaultPath = ManagedConfigurationFile().appManifestDirectory

    /// The directory's path.
    package let path: String

    private let mustBeRoots: Bool

    /// - Parameter mustBeRoots: whether the directory and the files have to be root's own, because root acts on what they say.
    package init(path: String = Self.defaultPath, mustBeRoots: Bool = false) {
        self.path = path
        self.mustBeRoots = mustBeRoots
    }

    /// Reads all manifests. A bad one is among the problems, and does not hide the others. Blocks its thread for the file
    /// system.
    package func load() -> AppManifests {
        var monitor = AppManifestMonitor()
        return monitor.directoryWasRead(readings()) ?? AppManifests()
    }

    /// The manifests in force, and then each time that others are, or something else is wrong.
    ///
    /// The first update is the directory as it is at the call; from then on no change is missed. A file that becomes bad keeps
    /// its last valid manifest in force until it is good again, or removed. What follows one another quickly is one change. A
    /// reader that is late gets the latest update only, which says everything.
    ///
    /// The watch ends when the task that iterates is cancelled, or the sequence goes. One task may iterate.
    ///
    /// - Parameters:
    ///   - kept: The ``AppManifests/contents`` of an earlier run. Where a file has become bad since, its content from there counts.
    ///   - quietPeriod: How long nothing must have happened in the directory before it is read.
    /// - Throws: `ManagedConfigurationError`: `cannotWatch`.
    package func updates(
        kept: [String: Data] = [:],
        quietPeriod: Duration = .milliseconds(250)
    ) throws(ManagedConfigurationError) -> AsyncStream<AppManifests> {
        let monitor = Locked(AppManifestMonitor(kept: kept))
        do {
            return try DirectoryWatcher.updates(of: path, quietPeriod: quietPeriod) { watchError in
                let readings = readings()
                let last = Self.isSound(readings) ? [:] : valid(kept)
                return monitor.withLock {
                    $0.directoryWasRead(readings, last: last, watchProblem: watchError.map { .cannotWatch(path, $0) })
                }
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

    /// Read anew each time: the system may not have known a user before.
    private func valid(_ kept: [String: Data]) -> [String: AppManifestMonitor.Valid] {
        kept.compactMapValues { content in
            let manifest = try? AppManifest(json: content, file: path)
            return manifest.map { AppManifestMonitor.Valid(manifest: $0, content: content) }
        }
    }

    private func readings() -> Result<[AppManifestMonitor.Reading], ManagedConfigurationError> {
        Result { () throws(ManagedConfigurationError) in
            var readings: [AppManifestMonitor.Reading] = []
            for name in try names() {
                // A file that went away since is no manifest.
                if let reading = reading(name) { readings.append(reading) }
            }
            return readings
        }
    }

    private func reading(_ name: String) -> AppManifestMonitor.Reading? {
        let path = path.hasSuffix("/") ? path + name : path + "/" + name
        let file = AdministratorFile(
            path: path,
            maximumSize: 65_536,
            decides: "which program is the app",
            mustBeRoots: mustBeRoots
        )
        var content: Data?
        do throws(ManagedConfigurationError) {
            content = try file.read()
            guard let content else { return nil }
            let manifest = try AppManifest(json: content, file: path)
            let valid = AppManifestMonitor.Valid(manifest: manifest, content: content)
            return AppManifestMonitor.Reading(name: name, path: path, manifest: .success(valid))
        } catch {
            var problem = error
            problem.app = content.flatMap { Self.identifier(in: $0) }
            return AppManifestMonitor.Reading(name: name, path: path, manifest: .failure(problem))
        }
    }

    /// The app that a manifest is of which something is wrong, as far as it says so.
    private static func identifier(in json: Data) -> String? {
        (try? JSONValue(parsing: [UInt8](json), limits: JSONLimits(size: json.count)))?["id"]?.string
    }

    private func names() throws(ManagedConfigurationError) -> [String] {
        var info = stat()
        guard stat(path, &info) == 0 else {
            let code = errno
            if code == ENOENT || code == ENOTDIR { return [] }
            throw unreadable(String(cString: strerror(code)))
        }
        guard info.st_mode & S_IWOTH == 0 else { throw .writableByAnyone(path, decides: "which apps are enrolled") }
        if mustBeRoots, !info.isRootsAlone { throw .notRoots(path, info, decides: "which apps are enrolled") }
        do {
            return try FileManager.default.contentsOfDirectory(atPath: path)
                .filter { $0.hasSuffix(".json") && !$0.hasPrefix(".") }
        } catch {
            // It may have gone since.
            guard access(path, F_OK) == 0 else { return [] }
            throw unreadable(systemReason(error))
        }
    }

    private func unreadable(_ message: String) -> ManagedConfigurationError {
        ManagedConfigurationError(
            .unreadable,
            file: path,
            message: message,
            remedy: "make it a directory that the broker's user may read"
        )
    }
}
