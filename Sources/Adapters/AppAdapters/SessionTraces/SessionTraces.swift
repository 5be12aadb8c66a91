package import DeviceConfiguration
import FoundationEssentials
import Glibc
@_spi(Extensions) import SharedDevice

/// The traces that a user leaves in a desktop session, apart from the data of apps.
package enum SessionTrace: String, Sendable, CaseIterable {
    case clipboard
    case recentFiles = "recent-files"
    case downloads, trash, thumbnails, history, keyring
    case printQueue = "print-queue"
}

/// The traces of one kind that were found, or that were removed.
package enum TraceFinding: Sendable, Equatable {
    /// A description, such as “3 files, 120 bytes”.
    case traces(String)
    case nothing
    /// The session has no such place, with the reason.
    case absent(String)

    static func files(_ files: Int, _ bytes: Int) -> TraceFinding {
        files == 0 ? .nothing : .traces("\(files) \(files == 1 ? "file" : "files"), \(bytes) bytes")
    }
}

/// The traces of the desktop session of this process, as its environment describes it. Removing a trace is idempotent.
package struct SessionTraces: Sendable {
    private let places: TracePlaces
    private let files: TraceFiles
    private let clipboard: Clipboard
    private let keyring: Keyring
    private let printQueue: PrintQueue

    /// - Parameter kept: the directory of the app's record, which must survive the deletion.
    package init(
        environment: [String: String] = ProcessInfo.processInfo.environment,
        user: SystemUser,
        keeping kept: String
    ) {
        let tools = SessionTools(environment: environment)
        places = TracePlaces(environment: environment, user: user)
        files = TraceFiles(home: places.home, kept: kept)
        clipboard = Clipboard(environment: environment, tools: tools)
        keyring = Keyring(places: places, files: files)
        printQueue = PrintQueue(user: user.name ?? "\(user.number)", tools: tools)
    }

    /// Finds a trace without changing anything. Throws if the trace cannot be seen, and so cannot be removed either.
    package func look(for trace: SessionTrace) async throws(AdapterFailure) -> TraceFinding {
        switch trace {
        case .clipboard: try await clipboard.look()
        case .recentFiles, .downloads, .trash, .thumbnails, .history: try await files.look(at: places.paths(of: trace))
        case .keyring: try await keyring.look()
        case .printQueue: try await printQueue.look()
        }
    }

    /// Removes a trace, verifies that it is gone, and returns what was removed. Throws if some of it may be left.
    package func remove(_ trace: SessionTrace) async throws(AdapterFailure) -> TraceFinding {
        switch trace {
        case .clipboard: try await clipboard.clear()
        case .recentFiles, .downloads, .trash, .thumbnails, .history: try await files.remove(places.paths(of: trace))
        case .keyring: try await keyring.remove()
        case .printQueue: try await printQueue.cancelJobs()
        }
    }
}

/// The session's command-line tools that remove traces.
struct SessionTools: Sendable {
    private static let patience = Duration.seconds(15)

    private let folders: [String]

    init(environment: [String: String]) {
        folders = (environment["PATH"] ?? "/usr/bin:/bin").split(separator: ":").map(String.init)
    }

    func has(_ name: String) -> Bool { folders.contains { access("\($0)/\(name)", X_OK) == 0 } }

    /// Runs a tool to its end with `LC_ALL=C`. Returns its status, 127 for a missing tool, and the text of both
    /// outputs. Throws if a signal ends the tool, or if it exceeds the timeout and is killed.
    func output(of name: String, _ arguments: [String]) async throws(AdapterFailure) -> (status: Int32, text: String) {
        let words = ([name] + arguments).joined(separator: " ")
        do throws(HelperProcess.Failure) {
            let (status, text) = try await HelperProcess.output(
                of: "env",
                ["LC_ALL=C", name] + arguments,
                patience: Self.patience
            )
            guard let status, status < 128 else {
                throw HelperProcess.Failure("it did not end within \(Self.patience)")
            }
            return (status, text)
        } catch {
            throw AdapterFailure("run \(words): \(error.description)", remedy: "Try it in the session")
        }
    }

    /// Runs a tool whose child keeps running, without waiting for that child's output. Throws unless the status is 0.
    func run(_ name: String, _ arguments: [String]) async throws(AdapterFailure) {
        let shell = #"exec "$@" >/dev/null 2>&1"#
        let (status, _) = try await output(of: "sh", ["-c", shell, "sh", name] + arguments)
        guard status != 0 else { return }
        let words = ([name] + arguments).joined(separator: " ")
        throw AdapterFailure("run \(words): it ended with status \(status)", remedy: "Try it in the session")
    }
}
