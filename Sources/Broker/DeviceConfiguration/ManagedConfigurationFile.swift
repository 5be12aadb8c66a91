import Basics
public import FoundationEssentials
import Synchronization

/// The file of the managed configuration. Without the file the device is personal. That is not an error.
public struct ManagedConfigurationFile: Sendable {
    public enum Content: Sendable, Equatable {
        /// The file or its directory does not exist.
        case missing
        case present(ManagedConfiguration)

        public var mode: ManagedMode {
            switch self {
            case .missing: .personal
            case .present(let configuration): configuration.mode
            }
        }
    }

    public static let defaultPath = "/etc/shared-device/managed-configuration.json"

    public let path: String

    public init(path: String = Self.defaultPath) { self.path = path }

    /// The default directory of the apps' manifests: `apps`, next to the file.
    public var appManifestDirectory: String {
        let directory = parentDirectory(of: path)
        return directory.hasSuffix("/") ? directory + "apps" : directory + "/apps"
    }

    /// Reads the file. Blocks its thread for the file system.
    public func load() throws(ManagedConfigurationError) -> Content {
        guard let content = try content() else { return .missing }
        return .present(try ManagedConfiguration(json: content, file: path))
    }

    /// The file's bytes; `nil` if there is no file. Blocks its thread for the file system.
    public func content() throws(ManagedConfigurationError) -> Data? {
        try AdministratorFile(path: path, maximumSize: 1_048_576, decides: "whether this device is shared").read()
    }

    /// An update for the current file, followed by one for each change of the content in force or of the problem.
    ///
    /// The first update describes the file at the call. No later change is missed, however the file is written: in
    /// place, by a rename, by removing and creating it, or with its directory. Changes in quick succession are merged
    /// into one. A slow reader only receives the latest update, which is complete.
    ///
    /// The watch ends when the iterating task is cancelled, or the sequence is released. Only one task may iterate.
    ///
    /// - Parameter quietPeriod: How long the directory has to be unchanged before the file is read: an editor empties a
    ///   file first and then fills it.
    /// - Throws: `ManagedConfigurationError`: `cannotWatch`.
    public func updates(
        quietPeriod: Duration = .milliseconds(250)
    ) throws(ManagedConfigurationError) -> AsyncStream<ManagedConfigurationUpdate> {
        let monitor = Locked(ManagedConfigurationMonitor())
        do {
            return try DirectoryWatcher.updates(of: [parentDirectory(of: path)], quietPeriod: quietPeriod) {
                let reading = Result { () throws(ManagedConfigurationError) in try load() }
                return monitor.withLock { $0.fileWasRead(reading) }
            }
        } catch {
            throw .cannotWatch(path, error)
        }
    }
}

/// The content in force and the problem of the file. A reader of the latest update has missed nothing.
public struct ManagedConfigurationUpdate: Sendable, Equatable {
    /// The last valid content. `nil` means that no content was valid since the watch began; the mode in the store stays
    /// in force.
    public let inForce: ManagedConfigurationFile.Content?
    /// Why the current file is not in force; `nil` if it is.
    public let problem: ManagedConfigurationError?
}

/// Decides which readings of the file are news. Pure.
struct ManagedConfigurationMonitor: Sendable {
    private var latest: ManagedConfigurationUpdate?

    /// The update for this reading of the file; `nil` if nothing has changed.
    mutating func fileWasRead(
        _ reading: Result<ManagedConfigurationFile.Content, ManagedConfigurationError>
    ) -> ManagedConfigurationUpdate? {
        let update =
            switch reading {
            case .success(let content): ManagedConfigurationUpdate(inForce: content, problem: nil)
            case .failure(let problem): ManagedConfigurationUpdate(inForce: latest?.inForce, problem: problem)
            }
        guard update != latest else { return nil }
        latest = update
        return update
    }
}
