import FoundationEssentials
import Glibc
package import SharedDevice

/// Appends an app's events to a file, one JSON object a line, for tests and for the demonstration.
///
/// A line is written whole by one call, so that a killed process leaves no half of one, and is in the file on return.
package final class EventLog: Sendable {
    private let app: String
    private let path: String?
    private let descriptor: CInt

    /// - Parameter path: the file, made if it is missing; `nil` for no log.
    /// - Throws: ``FileFailure`` where it cannot be opened.
    package init(app: String, path: String?) throws(FileFailure) {
        self.app = app
        self.path = path
        guard let path else {
            descriptor = -1
            return
        }
        descriptor = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { throw FileFailure("open the event file", path) }
    }

    deinit { if descriptor >= 0 { close(descriptor) } }

    /// Records something about one account, or about none.
    package func record(_ kind: Event.Kind, account: String? = nil, items: Int? = nil, detail: String? = nil) {
        append(Event(kind, app: app, process: getpid(), account: account, items: items, detail: detail))
    }

    /// Records something about a change.
    package func record(_ kind: Event.Kind, _ change: AccountChange) {
        append(
            Event(
                kind,
                app: app,
                process: getpid(),
                previous: change.previousAccounts.map(\.username),
                current: change.current?.username,
                epoch: change.epoch
            )
        )
    }

    private func append(_ event: Event) {
        guard let path else { return }
        do {
            let encoder = JSONEncoder()
            encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
            let line = try encoder.encode(event) + [UInt8(ascii: "\n")]
            let written = line.withUnsafeBytes { write(descriptor, $0.baseAddress, $0.count) }
            guard written == line.count else { throw FileFailure("write to the event file", path) }
        } catch {
            Console.warn("\(app): \(error)")
        }
    }
}
