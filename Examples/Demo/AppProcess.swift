import ExampleSupport
import Foundation
import NotifyCenterTestKit
import SharedDeviceTestKit

/// One app of the demonstration: a process that is started, told what to do, stopped and killed, and the events that it
/// leaves behind.
final class AppProcess {
    let name: String
    let dataDirectory: String
    private let bus: String
    private let log: EventFile
    private(set) var process: ChildProcess
    /// What processes of this app that ended have written.
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

    /// All that it has reported so far.
    var events: [Event] { log.events }

    /// What it has written, to both outputs.
    var transcript: String {
        (earlierOutput + process.lines + [process.errorText]).joined(separator: "\n")
    }

    func tell(_ lines: String...) throws {
        for line in lines { try process.write(line) }
    }

    /// The number of events so far: what is to be waited for comes after them.
    func mark() throws -> Int {
        try log.refresh()
        return events.count
    }

    /// Waits for an event after the first `mark` ones.
    ///
    /// - Parameter isStarted: false where the process was killed, and the event comes from one that the bus starts.
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

    /// Stops it where it stands; it is stopped on return.
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
