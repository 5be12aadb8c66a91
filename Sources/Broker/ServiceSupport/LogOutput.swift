import Basics
import DBus
import DeviceStorage
public import Dispatch
import FoundationEssentials
public import Glibc
public import Logging
import Synchronization

/// A log on standard error, for the journal or a terminal. Each entry is one line, even if it contains text from other
/// processes. It has its own thread: while the journal is stalled, lines are dropped and counted.
public final class LogOutput: Sendable {
    /// The maximum number of queued lines. Each has at most 4,000 Unicode scalars.
    public static let capacity = 256
    private static let longestLine = 4000

    private let descriptor: CInt
    /// Whether the journal reads the output. It adds time and program itself, and takes the level from the line.
    private let isJournal: Bool
    private let writer = Workers(label: "log", count: 1, capacity: LogOutput.capacity)
    private let leftOut = Locked(0)

    public init(descriptor: CInt = STDERR_FILENO, environment: [String: String]) {
        self.descriptor = descriptor
        var information = stat()
        let isOpen = fstat(descriptor, &information) == 0
        isJournal = isOpen && environment["JOURNAL_STREAM"] == "\(information.st_dev):\(information.st_ino)"
    }

    public func logger(_ label: String, level: Logger.Level) -> Logger {
        Logger(label: label) { LogLines(output: self, label: $0, logLevel: level) }
    }

    /// Waits until the log is written, up to the limit.
    public func finish(within limit: DispatchTimeInterval = .seconds(1)) {
        let (deadline, isWritten) = (DispatchTime.now() + limit, DispatchSemaphore(value: 0))
        while !writer.submit({ isWritten.signal() }) {
            guard .now() < deadline else { return }
            usleep(1000)
        }
        _ = isWritten.wait(timeout: deadline)
    }

    fileprivate func write(_ level: Logger.Level, _ label: String, _ text: String) {
        let isTaken = writer.submit { [self] in
            let missing = leftOut.withLock { count in
                defer { count = 0 }
                return count
            }
            if missing > 0 {
                put(.warning, label, "log lines dropped, because standard error was not read in time: \(missing)")
            }
            put(level, label, text)
        }
        if !isTaken { leftOut.withLock { $0 += 1 } }
    }

    private func put(_ level: Logger.Level, _ label: String, _ text: String) {
        let head = isJournal ? "<\(level.severity)>" : "\(Date().formatted(.iso8601)) \(level) \(label): "
        let line = Array((head + text.printable(Self.longestLine) + "\n").utf8)
        var sent = 0
        while sent < line.count {
            let count = line[sent...].withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
            // The reader has gone.
            guard count >= 0 || errno == EINTR else { return }
            sent += max(0, count)
        }
    }
}

/// The message first, then each value after its key; quoted unless it is a single word, so that it cannot look like a
/// key.
private struct LogLines: LogHandler {
    let output: LogOutput
    let label: String
    var logLevel: Logger.Level
    var metadata: Logger.Metadata = [:]

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    func log(event: LogEvent) {
        let values = metadata.merging(event.metadata ?? [:]) { $1 }.sorted { $0.key < $1.key }
        let text = values.reduce("\(event.message)") { "\($0) \($1.key)=\(Self.quoted("\($1.value)"))" }
        output.write(event.level, label, text)
    }

    private static func quoted(_ value: String) -> String {
        let isWord = !value.isEmpty && value.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F && !#""\="#.utf8.contains($0) }
        guard !isWord else { return value }
        let escaped = value.replacing(#"\"#, with: #"\\"#).replacing("\"", with: #"\""#)
        return "\"\(escaped)\""
    }
}

extension Logger.Level {
    /// The level's number in syslog(3).
    fileprivate var severity: Int {
        switch self {
        case .trace, .debug: 7
        case .info: 6
        case .notice: 5
        case .warning: 4
        case .error: 3
        case .critical: 2
        }
    }
}
