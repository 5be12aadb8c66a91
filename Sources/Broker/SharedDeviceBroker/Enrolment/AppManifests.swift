/// The manifests of a directory, as they are in force.
package struct AppManifests: Sendable, Equatable {
    /// The enrolled apps, in the order of their files' names; no two have one identifier.
    package let manifests: [AppManifest]
    /// What is wrong with files, or with the directory. A file's problem does not touch the others.
    package let problems: [ManagedConfigurationError]

    package init(manifests: [AppManifest] = [], problems: [ManagedConfigurationError] = []) {
        self.manifests = manifests
        self.problems = problems
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
        let manifest: Result<AppManifest, ManagedConfigurationError>
    }

    private var valid: [String: AppManifest] = [:]
    private var latest: AppManifests?

    /// The manifests in force after this reading; `nil` where that is no news.
    ///
    /// - Parameters:
    ///   - readings: Of each file in the directory; the error where the directory cannot be used.
    ///   - watchProblem: Why later changes may go unseen.
    mutating func directoryWasRead(
        _ readings: Result<[Reading], ManagedConfigurationError>,
        watchProblem: ManagedConfigurationError? = nil
    ) -> AppManifests? {
        let next: AppManifests
        switch readings {
        case .success(let readings):
            next = merge(readings, watchProblem)
        case .failure(let problem):
            next = AppManifests(manifests: latest?.manifests ?? [], problems: [problem])
        }
        guard next != latest else { return nil }
        latest = next
        return next
    }

    private mutating func merge(_ readings: [Reading], _ watchProblem: ManagedConfigurationError?) -> AppManifests {
        var problems = watchProblem.map { [$0] } ?? []
        var kept: [String: AppManifest] = [:]
        var owners: [String: String] = [:]
        var manifests: [AppManifest] = []
        for reading in readings.sorted(by: { $0.name < $1.name }) {
            let manifest: AppManifest
            switch reading.manifest {
            case .success(let current):
                manifest = current
            case .failure(let problem):
                problems.append(problem)
                guard let last = valid[reading.name] else { continue }
                manifest = last
            }
            if let owner = owners[manifest.identifier] {
                problems.append(.duplicate(manifest.identifier, in: reading.path, and: owner))
                continue
            }
            owners[manifest.identifier] = reading.path
            kept[reading.name] = manifest
            manifests.append(manifest)
        }
        valid = kept
        return AppManifests(manifests: manifests, problems: problems)
    }
}

extension ManagedConfigurationError {
    fileprivate static func duplicate(
        _ identifier: String,
        in file: String,
        and other: String
    ) -> ManagedConfigurationError {
        ManagedConfigurationError(
            .contradiction,
            file: file,
            key: "id",
            message: "\(other) is the manifest of \(identifier), and this one does not count",
            remedy: "remove one of the two"
        )
    }
}
