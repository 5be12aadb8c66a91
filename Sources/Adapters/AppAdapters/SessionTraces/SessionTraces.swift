package import DeviceConfiguration
import FoundationEssentials
import Glibc

/// What a person leaves in a desktop session, beside what the apps keep.
package enum SessionTrace: String, Sendable, CaseIterable {
    case clipboard
    case recentFiles = "recent-files"
    case downloads, trash, thumbnails, history, keyring
    case printQueue = "print-queue"
}

/// What is there of one kind of trace; or what was there, and is gone.
package enum TraceFinding: Sendable, Equatable {
    /// In words, such as “3 files, 120 bytes”.
    case traces(String)
    case nothing
    /// This session has no such thing, with the reason.
    case absent(String)

    /// A number of files; `nil` where there are none.
    static func files(_ files: Int, _ bytes: Int) -> TraceFinding {
        files == 0 ? .nothing : .traces("\(files) \(files == 1 ? "file" : "files"), \(bytes) bytes")
    }
}

/// The traces of the desktop session that this process belongs to, as its environment describes it. Each kind can be removed as often as one
/// likes.
package struct SessionTraces: Sendable {
    private let places: TracePlaces
    private let files: TraceFiles
    private let clipboard: Clipboard
    private let keyring: Keyring
    private let printQueue: PrintQueue

    /// - Parameters:
    ///   - user: whose session it is.
    ///   - kept: a directory that has to outlast the deletion: that of the app's record.
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

    /// What there is of a trace. Changes nothing.
    ///
    /// - Throws: ``AdapterFailure`` where that cannot be seen, which means that it cannot be removed either.
    package func look(for trace: SessionTrace) async throws(AdapterFailure) -> TraceFinding {
        switch trace {
        case .clipboard: try await clipboard.look()
        case .recentFiles, .downloads, .trash, .thumbnails, .history: try await files.look(at: places.paths(of: trace))
        case .keyring: try await keyring.look()
        case .printQueue: try await printQueue.look()
        }
    }

    /// Removes a trace, and looks that nothing is left of it.
    ///
    /// - Returns: what was there.
    /// - Throws: ``AdapterFailure`` where something may be left.
    package func remove(_ trace: SessionTrace) async throws(AdapterFailure) -> TraceFinding {
        switch trace {
        case .clipboard: try await clipboard.clear()
        case .recentFiles, .downloads, .trash, .thumbnails, .history: try await files.remove(places.paths(of: trace))
        case .keyring: try await keyring.remove()
        case .printQueue: try await printQueue.cancelJobs()
        }
    }
}
