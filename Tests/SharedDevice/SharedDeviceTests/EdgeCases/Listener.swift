import Foundation
import NotifyCenterTestKit
import SharedDevice
import Testing

/// `listener-app` as a process, with its events across its processes.
final class Listener {
    struct Event: Decodable {
        let event: String
        let account: String?
        let identifier: String?
        let epoch: UInt64?
        let previous: [String]?
        let detail: String?
        let code: String?

        init(_ event: String) {
            self.event = event
            (account, identifier, epoch, previous, detail, code) = (nil, nil, nil, nil, nil, nil)
        }

        /// The event in short: `cleanup ada → grace`, `open ada`.
        var line: String {
            switch event {
            case "cleanup": "cleanup \(previous?.joined(separator: ", ") ?? "") → \(account ?? "-")"
            case "hidden": code.map { "hidden \($0)" } ?? "hidden"
            case "open": "open \(account ?? "-")"
            default: event
            }
        }
    }

    let identifier: String
    let directory: String
    private let device: DeviceOnPrivateBus
    private let launcher: [String]
    private let bus: String
    private(set) var process: ChildProcess?

    /// - Parameters:
    ///   - launcher: a command that starts the app, for instance a sandbox.
    ///   - bus: the address of the device's bus as the app sees it.
    init(
        _ name: String = "listener",
        on device: DeviceOnPrivateBus,
        directory: String? = nil,
        launcher: [String] = [],
        bus: String? = nil
    ) throws {
        self.device = device
        self.launcher = launcher
        self.bus = bus ?? device.bus.address
        identifier = "org.example.\(name)"
        self.directory = directory ?? "\(device.directory.path)/\(name)"
        try FileManager.default.createDirectory(atPath: self.directory, withIntermediateDirectories: true)
    }

    func start(_ further: String..., environment: [String: String] = [:]) throws {
        let arguments = ["--identifier", identifier, "--directory", directory, "--bus", bus]
        let command = launcher + [ChildProcess.built("listener-app")] + arguments + further
        process = try ChildProcess(command[0], Array(command.dropFirst()), environment: environment)
    }

    func start(showing user: String?) async throws {
        let mark = mark
        try start()
        try await wait(user.map { "open \($0)" } ?? "nobody", after: mark)
    }

    func kill() {
        process?.kill()
        process?.waitUntilExit()
    }

    func suspend() { process?.suspend() }
    func resume() { process?.resume() }

    // MARK: Events

    var events: [Event] {
        let text = (try? String(contentsOfFile: "\(directory)/events", encoding: .utf8)) ?? ""
        // The last line may be incomplete.
        let lines = text.split(separator: "\n", omittingEmptySubsequences: false).dropLast()
        return lines.map { (try? JSONDecoder().decode(Event.self, from: Data($0.utf8))) ?? Event("nonsense: \($0)") }
    }

    /// The number of events so far; later events come after it.
    var mark: Int { events.count }

    func events(after mark: Int) -> [Event] { Array(events.dropFirst(mark)) }

    /// Its hidden, cleanup and open states, without its responses to commands.
    func story(after mark: Int = 0) -> [String] {
        let chapters: Set = ["hidden", "cleanup", "cleaned", "nobody", "open"]
        return events(after: mark).filter { chapters.contains($0.event) }.map(\.line)
    }

    @discardableResult
    func wait(_ line: String, after mark: Int = 0) async throws -> Event {
        var found: Event?
        do {
            try await eventually("\(identifier): \(line)") {
                found = events(after: mark).first { $0.line == line }
                return found != nil
            }
        } catch {
            throw DeviceOnPrivateBus.Unexpected(
                description: "\(error): \(events(after: mark).map(\.line))\n\(process?.errorText ?? "")"
            )
        }
        return try #require(found)
    }

    @discardableResult
    func ask(_ command: String) async throws -> Event {
        let mark = mark
        try process?.write(command)
        return try await wait(String(command.prefix { $0 != " " }), after: mark)
    }

    func tell(_ command: String) throws { try process?.write(command) }

    /// Waits until no user is shown, and checks that the app was hidden, has cleaned up once after ada, and has no
    /// files. A new process is hidden first.
    func expectCleanup(
        after mark: Int,
        isNewProcess: Bool = false,
        _ location: SourceLocation = #_sourceLocation
    ) async throws {
        try await wait("nobody", after: mark)
        let expected = ["hidden", "cleanup ada → -", "cleaned", "nobody"]
        #expect(story(after: mark) == (isNewProcess ? ["hidden"] : []) + expected, sourceLocation: location)
        #expect(files.isEmpty, sourceLocation: location)
    }

    // MARK: Data

    /// The names of its data files, including those of unfinished removals.
    var files: [String] {
        let paths = FileManager.default.enumerator(atPath: "\(directory)/data")?.compactMap { $0 as? String } ?? []
        return paths.map { URL(fileURLWithPath: $0).lastPathComponent }.filter { $0.hasPrefix("session-") }.sorted()
    }

    var sessions: Set<UInt64> { Set(files.compactMap { UInt64($0.split(separator: "-")[1]) }) }

    func part(in report: CleanupReport?) -> CleanupReport.App? {
        report?.apps.first {
            $0.identifier.hasPrefix(identifier) && $0.identifier.contains("listener-app") || $0.identifier == identifier
        }
    }
}

/// An app in the test's process that signs users in and out, follows the account, and cleans up at once.
final class ControlApp {
    let application: SharedDeviceApplication
    private let log = Log()
    private let following: Task<Void, any Error>

    /// - Parameter detail: the detail of its receipts.
    init(on device: DeviceOnPrivateBus, name: String = "control", detail: String? = nil) {
        let application = device.application(name)
        self.application = application
        following = Task { [log] in
            for await change in application.accountChanges {
                log.add(change.current?.username ?? "-")
                try await application.cleanupDone(change, detail: detail)
            }
        }
    }

    deinit { following.cancel() }

    @discardableResult
    func signIn(_ user: String) async throws -> Account { try await application.signIn(user).account }

    @discardableResult
    func signOut() async throws -> UInt64 {
        let account = try #require(try await application.getCurrentAccount().current)
        return try await application.signout(with: account).session
    }

    /// Waits until the user, or “-” for none, is the last account that it was told.
    func hears(_ name: String) async throws { try await eventually("\(name) is heard") { log.lines.last == name } }

    func report(_ session: UInt64) async throws -> CleanupReport? {
        try await application.cleanupReport(ofSession: session)
    }

    func wait(for app: Listener, in session: UInt64, _ progress: CleanupReport.Progress) async throws {
        try await eventually("\(app.identifier) has \(progress)") {
            app.part(in: try await report(session))?.progress == progress
        }
    }

    func waitUntilComplete(_ session: UInt64) async throws {
        try await eventually("the round is complete") { try await report(session)?.isComplete == true }
    }

    func wait(forAllBut app: Listener, in session: UInt64) async throws {
        try await eventually("only \(app.identifier) owes") {
            let report = try await report(session)
            return report?.owing.count == 1 && app.part(in: report)?.progress.isSettled == false
        }
    }
}

/// Creates a device with an app that signs users in and out, and a listener that shows `user`; `nil` means that no user
/// is signed in.
///
/// - Parameter configuration: keys in addition to `sharedDeviceMode` and `passwordSignIn`.
func deviceWithListener(
    showing user: String?,
    configuration: String = #""organization": "Contoso""#
) async throws -> (DeviceOnPrivateBus, ControlApp, Listener) {
    let device = try await DeviceOnPrivateBus(configuration: configuration)
    let control = ControlApp(on: device)
    let app = try Listener(on: device)
    if let user { try await control.signIn(user) }
    try await app.start(showing: user)
    return (device, control, app)
}
