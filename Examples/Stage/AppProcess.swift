public import ExampleSupport
import Foundation
public import NotifyCenterTestKit
import SharedDeviceTestKit

/// An app of a demonstration: starts, commands, suspends and kills its process, and reads its events.
public final class AppProcess {
    public let name: String
    public let dataDirectory: String
    private let arguments: [String]
    private let environment: [String: String]
    private let log: EventFile
    public private(set) var process: ChildProcess
    private var earlierOutput: [String] = []

    /// Starts the app of this name, with further arguments and variables.
    ///
    /// - Parameter directory: The directory with the folders `data` and `events`.
    public init(
        _ name: String,
        bus: String,
        directory: String,
        arguments: [String] = [],
        environment: [String: String] = [:]
    ) throws {
        self.name = name
        self.environment = environment
        dataDirectory = "\(directory)/data/\(name)"
        log = EventFile(path: "\(directory)/events/\(name).jsonl")
        self.arguments = ["--stay", "--bus", bus, "--data", dataDirectory, "--events", log.path] + arguments
        process = try ChildProcess(ChildProcess.built(name), self.arguments, environment: environment)
    }

    public var events: [Event] { log.events }

    public var transcript: String { (earlierOutput + process.lines + [process.errorText]).joined(separator: "\n") }

    public func tell(_ lines: String...) throws { for line in lines { try process.write(line) } }

    /// The number of events so far. A test that acts now waits for events after these.
    public func mark() throws -> Int {
        try log.refresh()
        return events.count
    }

    /// Waits for an event after the first `mark` events.
    ///
    /// - Parameter isStarted: `false` if the process was killed and the bus starts another, which reports the event.
    @discardableResult
    public func wait(
        for what: String,
        after mark: Int,
        isStarted: Bool = true,
        within patience: Duration = .seconds(60),
        where matches: (Event) -> Bool
    ) async throws -> Event {
        var found: Event?
        try await eventually("“\(name): \(what)”", within: patience) {
            try log.refresh()
            found = events[mark...].first(where: matches)
            guard found != nil || process.isRunning || !isStarted else {
                throw DemoFailure("\(name) ended with status \(process.waitUntilExit()), before “\(what)”")
            }
            return found != nil
        }
        guard let found else { throw DemoFailure("\(name): \(what)") }
        return found
    }

    /// Waits until the app has reported that the data of this user is deleted.
    @discardableResult
    public func waitUntilClean(of username: String, after mark: Int, isStarted: Bool = true) async throws -> Event {
        try await wait(for: "cleaned up after \(username)", after: mark, isStarted: isStarted) {
            $0.event == .cleaned && $0.previous?.contains(username) == true
        }
    }

    // MARK: Life and death

    /// Suspends the process, and waits until it has stopped.
    public func suspend() async throws {
        process.suspend()
        try await eventually("\(name) is stopped", within: .seconds(60)) { ProcessState.isStopped(process.identifier) }
    }

    public func resume() { process.resume() }

    public func kill() {
        process.kill()
        process.waitUntilExit()
    }

    public func restart() throws {
        earlierOutput += process.lines + [process.errorText]
        process = try ChildProcess(ChildProcess.built(name), arguments, environment: environment)
    }

    public func quit() throws {
        try tell("quit")
        let status = process.waitUntilExit()
        guard status == 0 else { throw DemoFailure("\(name) ended with status \(status)") }
        try log.refresh()
    }
}

/// The numbers of events of several apps at one time.
public struct Marks {
    private let marks: [String: Int]

    public init(_ apps: [AppProcess]) throws {
        marks = try Dictionary(uniqueKeysWithValues: apps.map { ($0.name, try $0.mark()) })
    }

    public subscript(_ app: AppProcess) -> Int {
        get throws {
            guard let mark = marks[app.name] else { throw DemoFailure("no mark for \(app.name)") }
            return mark
        }
    }
}

/// An app's event file, read while the app writes it.
final class EventFile {
    let path: String
    private(set) var events: [Event] = []
    private var position: UInt64 = 0
    private var pending = Data()

    init(path: String) { self.path = path }

    /// Reads the events since the last call.
    func refresh() throws {
        guard FileManager.default.fileExists(atPath: path) else { return }
        let handle = try FileHandle(forReadingFrom: URL(fileURLWithPath: path))
        defer { try? handle.close() }
        try handle.seek(toOffset: position)
        let data = try handle.readToEnd() ?? Data()
        position += UInt64(data.count)
        pending += data
        while let end = pending.firstIndex(of: UInt8(ascii: "\n")) {
            events.append(try JSONDecoder().decode(Event.self, from: pending[..<end]))
            pending = Data(pending[(end + 1)...])
        }
    }
}

/// A demonstration could not show what it set out to show.
public struct DemoFailure: Error, CustomStringConvertible {
    public let description: String

    public init(_ description: String) { self.description = description }
}
