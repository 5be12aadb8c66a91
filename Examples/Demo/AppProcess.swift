import ExampleSupport
import Foundation
import NotifyCenterTestKit
import SharedDeviceTestKit

/// One app of the demonstration. The demonstration starts its process, tells it what to do, stops and kills it, and reads its events.
final class AppProcess {
    let name: String
    let dataDirectory: String
    private let bus: String
    private let log: EventFile
    private(set) var process: ChildProcess
    /// The output of this app's earlier processes.
    private var earlierOutput: [String] = []

    init(_ name: String, bus: String, directory: String) throws {
        self.name = name
        self.bus = bus
        dataDirectory = "\(directory)/data/\(name)"
        log = EventFile(path: "\(directory)/events/\(name).jsonl")
        process = try Self.start(name, bus, dataDirectory, log.path)
    }

    private static func start(_ name: String, _ bus: String, _ data: String, _ events: String) throws -> ChildProcess {
        try ChildProcess(
            ChildProcess.built(name),
            ["--stay", "--bus", bus, "--data", data, "--events", events]
        )
    }

    /// All events so far.
    var events: [Event] { log.events }

    /// What its processes have written to standard output and standard error.
    var transcript: String {
        (earlierOutput + process.lines + [process.errorText]).joined(separator: "\n")
    }

    func tell(_ lines: String...) throws {
        for line in lines { try process.write(line) }
    }

    /// The number of events so far. A test that acts now waits for events after these.
    func mark() throws -> Int {
        try log.refresh()
        return events.count
    }

    /// Waits for an event after the first `mark` ones.
    ///
    /// - Parameter isStarted: false if the process was killed and the bus starts another one, which reports the event.
    @discardableResult
    func wait(
        for what: String,
        after mark: Int,
        isStarted: Bool = true,
        where matches: (Event) -> Bool
    ) async throws -> Event {
        var found: Event?
        try await eventually("“\(name): \(what)”", within: .seconds(60)) {
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

    // MARK: Life and death

    /// Stops it where it stands, and waits until it has stopped.
    func suspend() async throws {
        process.suspend()
        try await eventually("\(name) is stopped", within: .seconds(60)) { ProcessState.isStopped(process.identifier) }
    }

    func resume() { process.resume() }

    func kill() {
        process.kill()
        process.waitUntilExit()
    }

    func restart() throws {
        earlierOutput += process.lines + [process.errorText]
        process = try Self.start(name, bus, dataDirectory, log.path)
    }

    func quit() throws {
        try tell("quit")
        let status = process.waitUntilExit()
        guard status == 0 else { throw DemoFailure("\(name) ended with status \(status)") }
        try log.refresh()
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

/// The demonstration could not show what it set out to show.
struct DemoFailure: Error, CustomStringConvertible {
    let description: String

    init(_ description: String) { self.description = description }
}
