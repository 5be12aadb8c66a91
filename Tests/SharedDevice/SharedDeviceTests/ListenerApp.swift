import ExampleSupport
import Foundation
import NotifyCenterTestKit

/// One of the example apps as a process, with its data directory and its event file.
final class ListenerApp {
    static let names = ["point-of-sale", "flight-briefing", "field-service"]

    let name: String
    let dataDirectory: String
    private let eventsPath: String
    private let bus: String
    private let launcher: [String]
    private var process: ChildProcess?

    /// - Parameters:
    ///   - launcher: a command that starts the app, for instance a sandbox.
    ///   - bus: the address of the device's bus as the app sees it.
    init(_ name: String, on device: DeviceOnPrivateBus, launcher: [String] = [], bus: String? = nil) throws {
        self.name = name
        self.launcher = launcher
        self.bus = bus ?? device.bus.address
        dataDirectory = "\(device.directory.path)/data/\(name)"
        eventsPath = "\(device.directory.path)/\(name).jsonl"
    }

    func start() throws {
        let arguments = ["--stay", "--bus", bus, "--data", dataDirectory, "--events", eventsPath]
        let command = launcher + [ChildProcess.built(name)] + arguments
        process = try ChildProcess(command[0], Array(command.dropFirst()))
    }

    func tell(_ line: String) throws { try process?.write(line) }
    func suspend() { process?.suspend() }
    func resume() { process?.resume() }

    func kill() {
        process?.kill()
        process?.waitUntilExit()
    }

    /// All events that it has reported, across its processes.
    func events() throws -> [Event] {
        let text = (try? String(contentsOfFile: eventsPath, encoding: .utf8)) ?? ""
        // The last line may be incomplete.
        let lines = text.split(separator: "\n", omittingEmptySubsequences: false).dropLast()
        return try lines.map { try JSONDecoder().decode(Event.self, from: Data($0.utf8)) }
    }

    func wait(_ what: String, after mark: Int = 0, where matches: (Event) -> Bool) async throws {
        try await eventually("\(name): \(what)") { try events().dropFirst(mark).contains(where: matches) }
    }

    func work() async throws {
        let mark = try events().count
        try tell("work")
        try await wait("work is done", after: mark) { $0.event == .worked }
    }

    func showsAda(after mark: Int = 0) async throws {
        try await wait("ada's screen", after: mark) {
            $0.event == .screen && $0.detail == "open" && $0.account == "ada"
        }
    }

    /// Whether a file below its data directory contains “Ada”, in UTF-8 or UTF-16. “Ada” or “<ada>” is in all her data;
    /// “ada” could also occur in hexadecimal identifiers of other users.
    var holdsData: Bool {
        let needles = ["Ada", "<ada>"].flatMap { text in
            [String.Encoding.utf8, .utf16LittleEndian].compactMap { text.data(using: $0) }
        }
        let paths = FileManager.default.subpaths(atPath: dataDirectory) ?? []
        return paths.contains { path in
            // A directory has no contents.
            let content = FileManager.default.contents(atPath: "\(dataDirectory)/\(path)")
            return needles.contains { content?.range(of: $0) != nil }
        }
    }
}
